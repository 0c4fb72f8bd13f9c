"""geometry: the confidence sets of LOCAL-UCB and of ProBALL-UCB in the plane (d = 2, k = 1), computed from a run.

* online: the ellipse |beta - beta_2|_V <= a2, LinUCB's set;
* offline: for every line u within the radius of the estimated one, the segment |theta u - beta_1(u)|_V <= a1; their
  union never shrinks to a point, because the angle of the lines does not;
* LOCAL-UCB is optimistic over the intersection; ProBALL-UCB over the segment of the estimated line;
* ball: the smallest around ProBALL's estimate on that line that contains the offline set. By the paper's picture
  projections are used until the ball contains the ellipse (the algorithm has a proxy for it, Delta tau sqrt(t) <= d).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.arrays import Floats
from newcomer.charts.pictures import draw_outlines
from newcomer.model import Model
from newcomer.paper.figure import Point, swept
from newcomer.paper.scale import Scale, Setting
from newcomer.policies.widths import DEFAULT, resolve_widths
from newcomer.simulate import play
from newcomer.worlds.synthetic import Synthetic
from newcomer.worlds.world import world_stream

TIMES = (3, 30, 300)  # rounds after which the sets are drawn
WORLD = Synthetic(dim=2, rank=1, scale=1.25, length=1.0, seed=4)
USERS, STEPS, POINTS = 2000, 10, 181
ONLINE, OFFLINE, LOCAL, SEGMENT, BALL = (
    "online set (LinUCB)",
    "offline set",
    "intersection (LOCAL-UCB)",
    "ProBALL-UCB's segment",
    "ball around the offline set",
)
RIGHT = (BALL, ONLINE, SEGMENT)  # the sets of the right half, as drawn


def sweep(scale: Scale) -> list[Point]:
    """One computation: the sets of one newcomer, after each of the `TIMES`."""
    return [{"users": USERS, "seed": 1}]


def run(setting: Setting, *, users: int, seed: int) -> pl.DataFrame:
    """The outlines after each of the times: `time`, `set`, and the points `x`, `y` in `order`.

    The newcomer's history comes from a run of LOCAL-UCB itself; V and b after t rounds are sums over its first t
    rows. The true vector, drawn as a point, is solved for from the means of the candidates, which are phi^T beta
    without noise.
    """
    logs = WORLD.logs(users, STEPS, seed)
    model = fit(logs, rank=1, estimator="sold", ridge=1.0, null=False)
    features, rewards = _history(model, seed)
    low, high = resolve_widths("practical", [1, 2], TIMES[-1], DEFAULT)
    truth = WORLD.episode(world_stream(seed, "newcomer", 0), 2)
    beta = np.linalg.lstsq(truth.actions.reshape(-1, 2), truth.means.ravel(), rcond=None)[0]
    left, right = [], []
    for t in TIMES:
        gram = np.eye(2) + features[:t].T @ features[:t]
        sets = Sets(gram, features[:t].T @ rewards[:t], model.basis[:, 0], _tilt(model), low, high)
        found = sets.outlines() | {"true beta": beta[None, :].astype(np.float64)}
        whole = "in the ball: leave" if sets.contained() else "not in the ball: stay"
        named, other = f"LOCAL-UCB, after {t} rounds", f"ProBALL-UCB, after {t} rounds, ellipse {whole}"
        left += [_frame(named, name, outline) for name, outline in found.items() if name != BALL]
        right += [_frame(other, name, found[name]) for name in (*RIGHT, "true beta") if name in found]
    return pl.concat(left + right)


def _tilt(model: Model) -> float:
    """The largest angle between the true line and the estimated one that the radius allows.

    For lines (k = 1) the spectral distance is the sine of the angle, and the Frobenius distance sqrt(2) times that.
    """
    radius = model.radius("martingale", norm="spectral", form="identity", simplified=True)
    return float(np.arcsin(min(radius, 1.0)))


def _history(model: Model, seed: int) -> tuple[Floats, Floats]:
    """The features (T, 2) that LOCAL-UCB chooses for one newcomer, and the rewards (T,) it gets for them.

    `play` draws newcomer 0 from the stream of that name, so the same episode drawn again holds the features of its
    choices.
    """
    policy = nc.LocalUCB(model, horizon=TIMES[-1], radius=float(np.sqrt(2) * np.sin(_tilt(model))))
    rows = play({"LOCAL-UCB": policy}, WORLD, horizon=TIMES[-1], users=1, seed=seed, progress=False)
    episode = WORLD.episode(world_stream(seed, "newcomer", 0), TIMES[-1])
    return episode.actions[np.arange(TIMES[-1]), rows["action"].to_numpy()], rows["reward"].to_numpy()


class Sets:
    """The confidence sets of one newcomer, in the plane.

    `gram` is V = I + sum phi phi^T (2, 2), `moment` b = sum phi r (2,); `line` is the estimated direction u (2,), of
    which the true one is within the angle `tilt`; `low` and `high` are the widths a1 and a2.
    """

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
            BALL: self.ball(),
        }
        return {name: outline for name, outline in found.items() if len(outline)}

    def ellipse(self) -> Floats:
        """Points of |beta - beta_2|_V = a2, the image beta_2 + a2 L^-T of the unit circle, where V = L L^T."""
        turn = np.linspace(0, 2 * np.pi, POINTS, endpoint=False)
        circle = np.stack([np.cos(turn), np.sin(turn)])
        root = np.linalg.inv(np.linalg.cholesky(self.gram)).T
        return np.asarray(self.mean + self.high * (root @ circle).T)

    def ball(self) -> Floats:
        """Points of the smallest circle around ProBALL's estimate beta_1 that contains the offline set."""
        centre, radius = self._ball()
        turn = np.linspace(0, 2 * np.pi, POINTS, endpoint=False)
        return np.asarray(centre + radius * np.stack([np.cos(turn), np.sin(turn)], axis=1))

    def contained(self) -> bool:
        """Whether the ball contains the ellipse: by the paper's picture the subspace is then left."""
        centre, radius = self._ball()
        return bool(np.linalg.norm(self.ellipse() - centre, axis=1).max() <= radius)

    def _ball(self) -> tuple[Floats, float]:
        """Centre (2,) and radius: the farthest point of the offline set is an end of one of its segments."""
        centre = self.line * (self.line @ self.moment) / (self.line @ self.gram @ self.line)
        angle = float(np.arctan2(self.line[1], self.line[0]))
        ends = self.fan(angle + np.linspace(-self.tilt, self.tilt, POINTS), inside=False)
        return centre, float(np.linalg.norm(ends - centre, axis=1).max())

    def fan(self, angles: Floats, *, inside: bool) -> Floats:
        """The outline of the union of segments on lines at these angles: all far ends, then all near ends back.

        On the line of the unit vector u the estimate is beta_1 = c u with c = u^T b / u^T V u, and so |theta u -
        beta_1|_V <= a1 is the segment |theta - c| <= a1 / sqrt(u^T V u). With `inside` the points must be in the
        ellipse too. By Pythagoras in the V-norm |theta u - beta_2|_V^2 = (theta - c)^2 u^T V u + gap, where gap is the
        squared distance of beta_2 from the line, so the reach on the line shrinks from a1^2 to min(a1^2, a2^2 - gap);
        a line with a negative reach misses the ellipse and drops out.
        """
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


def _frame(panel: str, name: str, outline: Floats) -> pl.DataFrame:
    """One outline (points, 2) as rows of the table."""
    columns = {"x": outline[:, 0], "y": outline[:, 1], "order": np.arange(len(outline))}
    return pl.DataFrame(columns).select(pl.lit(panel).alias("time"), pl.lit(name).alias("set"), pl.all())


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """LOCAL-UCB above and ProBALL-UCB below, a panel for each time, each with axes of equal scale."""
    return draw_outlines(frame, path, series="set", facet="time")


def caption(scale: Scale) -> str:
    """What has been done."""
    return (
        "One newcomer served by LOCAL-UCB in a world with d = 2, k = 1, 20 fresh unit candidates a round, noise sd "
        f"0.5; {USERS:,} offline users of {STEPS} steps, SOLD with ridge 1, the martingale radius in its sharper form "
        f"(coverage taken as known), practical widths for T = {TIMES[-1]}."
    )


FIGURES = (
    swept(
        "geometry",
        claim="The online ellipsoid shrinks, the offline set keeps its angle; LOCAL-UCB is optimistic over the "
        "intersection; ProBALL-UCB projects until a ball around the offline set contains the ellipsoid.",
        caption=caption,
        sweep=sweep,
        run=run,
        table=lambda rows: rows,
        draw=draw,
    ),
)
