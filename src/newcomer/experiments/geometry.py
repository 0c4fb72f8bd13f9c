"""The confidence sets of LOCAL-UCB in the plane (d = 2, k = 1), at three times, computed from a run of the algorithm.

* online: the ellipse |beta - beta_2|_V <= a2, LinUCB's set;
* offline: for every line u within the radius of the estimated one, the segment |theta u - beta_1(u)|_V <= a1; their union never
  shrinks to a point, because the angle of the lines does not;
* LOCAL-UCB is optimistic over the intersection; ProBALL-UCB over the segment of the estimated line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.charts.pictures import draw_outlines
from newcomer.experiments.bench import Bench
from newcomer.experiments.figure import DIGITS, Figure
from newcomer.experiments.jobs import Job, Scalar, Table
from newcomer.experiments.places import Setting
from newcomer.experiments.scale import Scale
from newcomer.fitting import fit
from newcomer.model import Model
from newcomer.policies.local_ucb import LocalUCB
from newcomer.policies.widths import DEFAULT, resolve
from newcomer.simulation import play
from newcomer.worlds.episodes import stream
from newcomer.worlds.synthetic import Synthetic

Floats = NDArray[np.float64]

SWEEP = (3, 30, 300)  # rounds after which the sets are drawn
WORLD = Synthetic(dim=2, rank=1, scale=1.25, length=1.0, seed=4)
USERS, STEPS, POINTS = 2000, 10, 181
ONLINE, OFFLINE, LOCAL, SEGMENT = (
    "online set (LinUCB)",
    "offline set",
    "intersection (LOCAL-UCB)",
    "ProBALL-UCB's segment",
)


def jobs(scale: Scale, bench: Bench) -> list[Job]:
    """One computation."""
    return [Table("geometry", (("users", USERS), ("seed", 1)))]


def run(setting: Setting, arguments: Mapping[str, Scalar]) -> pl.DataFrame:
    """Outlines after each of the rounds of the sweep."""
    seed = int(arguments["seed"] or 0)
    logs = WORLD.logs(int(arguments["users"] or 0), STEPS, seed)
    model = fit(logs, rank=1, estimator="sold", ridge=1.0, null=False)
    features, rewards = _history(model, seed)
    low, high = resolve("practical", [1, 2], SWEEP[-1], DEFAULT)
    truth = WORLD.episode(stream(seed, "newcomer", 0), 2)
    beta = np.linalg.lstsq(truth.actions.reshape(-1, 2), truth.means.ravel(), rcond=None)[0]
    parts = []
    for t in SWEEP:
        gram = np.eye(2) + features[:t].T @ features[:t]
        sets = Sets(gram, features[:t].T @ rewards[:t], model.basis[:, 0], _tilt(model), low, high)
        parts += [_frame(t, name, outline) for name, outline in sets.outlines().items()]
        parts.append(_frame(t, "true beta", beta[None, :].astype(np.float64)))
    return pl.concat(parts)


def _tilt(model: Model) -> float:
    """Largest angle between the true line and the estimated one: Delta_F = sqrt(2) sin(angle)."""
    radius = model.radius("martingale", norm="spectral", form="identity", simplified=True)
    return float(np.arcsin(min(radius, 1.0)))


def _history(model: Model, seed: int) -> tuple[Floats, Floats]:
    """What one newcomer is shown by LOCAL-UCB, (T, 2), and the rewards (T,)."""
    policy = LocalUCB(model, horizon=SWEEP[-1], radius=float(np.sqrt(2) * np.sin(_tilt(model))))
    rows = play({"LOCAL-UCB": policy}, WORLD, horizon=SWEEP[-1], users=1, seed=seed, progress=False)
    episode = WORLD.episode(stream(seed, "newcomer", 0), SWEEP[-1])
    return episode.actions[np.arange(SWEEP[-1]), rows["action"].to_numpy()], rows["reward"].to_numpy()


class Sets:
    """The sets of one newcomer: V (2, 2), b (2,), the estimated line, the largest angle to it, and a1, a2."""

    def __init__(self, gram: Floats, moment: Floats, line: Floats, tilt: float, low: float, high: float) -> None:
        self.gram, self.moment, self.line, self.tilt, self.low, self.high = gram, moment, line, tilt, low, high
        self.mean = np.linalg.solve(gram, moment)

    def outlines(self) -> dict[str, Floats]:
        """Outline (points, 2) of each set, the largest first; a set that is empty is left out."""
        angle = float(np.arctan2(self.line[1], self.line[0]))
        angles = angle + np.linspace(-self.tilt, self.tilt, POINTS)
        found = {
            ONLINE: self.ellipse(),
            OFFLINE: self.fan(angles, inside=False),
            LOCAL: self.fan(angles, inside=True),
            SEGMENT: self.fan(np.array([angle]), inside=False),
        }
        return {name: outline for name, outline in found.items() if len(outline)}

    def ellipse(self) -> Floats:
        """Points of |beta - beta_2|_V = a2."""
        turn = np.linspace(0, 2 * np.pi, POINTS, endpoint=False)
        circle = np.stack([np.cos(turn), np.sin(turn)])
        root = np.linalg.inv(np.linalg.cholesky(self.gram)).T
        return np.asarray(self.mean + self.high * (root @ circle).T)

    def fan(self, angles: Floats, *, inside: bool) -> Floats:
        """Far ends of the segments of these lines in one direction, then near ends back; `inside` the ellipse too."""
        lines = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        size = np.einsum("nd,de,ne->n", lines, self.gram, lines)
        centre = lines @ self.moment / size
        gap = self.moment @ self.mean - centre**2 * size
        reach = np.full(len(angles), self.low**2)
        if inside:
            reach = np.minimum(reach, self.high**2 - gap)
        fine = reach >= 0
        half = np.sqrt(reach[fine] / size[fine])
        far, near = (lines[fine] * (centre[fine] + sign * half)[:, None] for sign in (1, -1))
        return np.concatenate([far, near[::-1]])


def _frame(t: int, name: str, outline: Floats) -> pl.DataFrame:
    columns = {"x": outline[:, 0], "y": outline[:, 1], "order": np.arange(len(outline))}
    return pl.DataFrame(columns).select(pl.lit(f"after {t} rounds").alias("time"), pl.lit(name).alias("set"), pl.all())


def table(scale: Scale, bench: Bench) -> pl.DataFrame:
    """`time`, `set`, and the outlines' points in `order`."""
    frames = [bench.rows(job) for job in jobs(scale, bench) if isinstance(job, Table)]
    return pl.concat(frames).with_columns(pl.col("x", "y").round_sig_figs(DIGITS))


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """A panel for each time."""
    return draw_outlines(frame, path, series="set", facet="time")


def _caption(scale: Scale) -> str:
    return (
        "One newcomer served by LOCAL-UCB in a world with d = 2, k = 1, 20 fresh unit candidates a round, noise sd "
        f"0.5; {USERS:,} offline users of {STEPS} steps, SOLD with "
        "ridge 1, the martingale radius in its sharper form (coverage taken as known), practical widths for T = "
        f"{SWEEP[-1]}."
    )


FIGURES = (
    Figure(
        name="geometry",
        claim="The online ellipsoid shrinks, the offline set keeps its angle; LOCAL-UCB is optimistic over the intersection.",
        caption=_caption,
        fits=lambda scale: [],
        jobs=jobs,
        table=table,
        draw=draw,
    ),
)
