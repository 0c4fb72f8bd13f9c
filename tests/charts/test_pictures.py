"""Guards pictures: files that open, one colour per policy, switch points where users left, charts in plain text."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib

import numpy as np
import polars as pl
import pytest

from newcomer.charts import palette, pictures, terminal
from newcomer.errors import NewcomerError
from newcomer.simulate import simulated_curves


def rows(names=("LinUCB", "ProBALL-UCB"), horizon=40, users=3):
    """Regret 1 a round; a policy with ProBALL in its name leaves the subspace at rounds 11, 21 and 31."""
    t = np.arange(1, horizon + 1)
    frames = []
    for name in names:
        for user in range(users):
            inside = (
                pl.Series(t <= 10 * (user + 1)) if "ProBALL" in name else pl.Series([None] * horizon, dtype=pl.Boolean)
            )
            columns = {"policy": name, "user": user, "t": t, "action": 0, "reward": 1.0, "regret": 1.0 + user}
            frames.append(pl.DataFrame({**columns, "in_subspace": inside}))
    return pl.concat(frames)


def size(path):
    """Width and height from a PNG's header."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", data[16:24])


def test_regret_curves_are_a_picture(tmp_path):
    width, height = size(pictures.regret_curves(rows(), tmp_path / "picture.png", title="title"))
    assert width > 1000 and height > 600


def test_switch_points_are_the_median_exit():
    frame = rows()
    points = pictures._switches(frame, simulated_curves(frame))
    assert points.to_dicts() == [{"policy": "ProBALL-UCB", "t": 21, "regret": 42.0}]


def test_no_switch_point_where_most_users_stay():
    frame = rows().filter(pl.col("t") <= 20)
    assert pictures._switches(frame, simulated_curves(frame)).is_empty()


def test_lines_in_panels_with_logarithmic_axes(tmp_path):
    table = pl.DataFrame(
        {"n": [10, 100] * 4, "y": [1.0, 0.1] * 4, "se": [2.0, 0.01] * 4}
        | {"policy": ["LinUCB"] * 4 + ["new"] * 4, "world": ["a", "a", "b", "b"] * 2}
    )
    axes = {"x": pictures.Axis("n", "users", log=True), "y": pictures.Axis("y", "error", log=True)}
    wide = size(pictures.draw_lines(table, tmp_path / "a.png", **axes, error="se", facet="world", marked=True))
    tall = size(pictures.draw_lines(table, tmp_path / "b.png", **axes, error="se", facet="world", columns=1))
    assert wide[0] > tall[0] and wide[1] < tall[1]
    with pytest.raises(NewcomerError, match="no column 'wrld'; did you mean 'world'"):
        pictures.draw_lines(table, tmp_path / "c.png", **axes, facet="wrld")


def test_long_lines_are_thinned_but_keep_their_ends():
    thin = pictures._thin(rows(horizon=2000), "policy", pictures.Axis("t", "round"))
    counts = thin.group_by("policy").len()["len"]
    assert counts.max() <= 2 * pictures.POINTS and thin["t"].min() == 1 and thin["t"].max() == 2000


def test_logarithmic_ticks():
    assert pictures._ticks(0.5, 5000) == [1, 10, 100, 1000]
    assert pictures._ticks(0.9, 6) == [1, 2, 5]


def test_every_policy_has_a_colour_of_its_own():
    assert len(set(palette.COLOURS.values())) == len(palette.COLOURS)
    assert not set(palette.SPARE) & {*palette.COLOURS.values(), *palette.OTHERS.values()}


@pytest.mark.parametrize(
    ("name", "policy"),
    [("ProBALL-UCB", "ProBALL-UCB"), ("ProBALLUCB", "ProBALL-UCB"), ("proball_ucb, tau = 5", "ProBALL-UCB")]
    + [("mmUCB", "mmUCB"), ("mUCB", "mUCB"), ("population mean", "PopulationMean"), ("LocalUCB", "LOCAL-UCB")],
)
def test_spellings_and_variants_share_their_policy_s_colour(name, policy):
    assert palette.palette_name(name) == policy and palette.policy_colour(name) == palette.COLOURS[policy]


def test_unknown_names_always_get_the_same_colour():
    assert (
        palette.policy_colour("mine") == palette.policy_colour("mine")
        and palette.policy_colour("mine") in palette.SPARE
    )


def test_unknown_names_in_one_picture_get_different_colours():
    names = [f"mine {i}" for i in range(len(palette.SPARE))] + ["LinUCB"]
    assert len(set(palette.palette_colours(names).values())) == len(names)
    assert palette.palette_colours(names)["LinUCB"] == palette.policy_colour("LinUCB")
    assert set(palette.palette_dashes(names).values()) == {(1, 0)}


def test_names_of_one_colour_differ_by_dashes():
    patterns = palette.palette_dashes(["ProBALL-UCB", "LinUCB", "ProBALL-UCB, tau 5"])
    assert patterns["ProBALL-UCB"] == patterns["LinUCB"] == (1, 0) != patterns["ProBALL-UCB, tau 5"]


def test_without_the_extra_pictures_say_what_to_install():
    code = "import sys; sys.modules['altair'] = None\n"
    code += "try:\n import newcomer.charts.pictures\nexcept ValueError as e: print(e)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "[report]" in said and "pip install" in said


def test_a_chart_in_text():
    x = np.arange(5)
    chart = terminal.terminal_curves({"up": (x, x), "flat": (x, 0 * x)}, width=24, height=5, x_title="t", y_title="y")
    assert chart.splitlines() == [
        "y",
        "4 |                  AAA",
        "  |             AAAAA",
        "2 |        AAAAA",
        "  |   AAAAA",
        "0 |AAABBBBBBBBBBBBBBBBBB",
        "  +---------------------",
        "   0         t         4",
        "",
        "  A up             4",
        "  B flat           0",
    ]


def test_a_text_chart_keeps_to_its_width():
    series = {
        f"policy number {i} with a long name" * 3: (np.arange(1, 100), np.arange(1, 100) * 1e4 * i) for i in range(5)
    }
    for width in (24, 40, 100):
        assert max(map(len, terminal.terminal_curves(series, width=width, height=8).splitlines())) <= width


def test_bad_text_charts_are_refused():
    with pytest.raises(NewcomerError, match="cannot be drawn"):
        terminal.terminal_curves({})
    with pytest.raises(NewcomerError, match="'a' cannot be drawn"):
        terminal.terminal_curves({"a": ([1, 2], [np.nan, 1])})
    assert "1" in terminal.terminal_curves({"constant": ([1.0], [1.0])})


def test_a_squeezed_picture_has_the_same_pixels_and_a_foreign_file_is_left_alone(tmp_path):
    """Oracle: a hand-made RGBA file with both kinds of rows, decoded pixel by pixel."""
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 4)).astype(np.uint8)
    pixels[..., 3] = 255
    left = np.diff(pixels, axis=1, prepend=np.zeros((3, 1, 4), np.uint8))
    rows = b"".join(bytes([y % 2]) + (left if y % 2 else pixels)[y].tobytes() for y in range(3))
    head = struct.pack(">II", 4, 3) + pictures.EIGHT_BIT_RGBA
    whole = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    data = pictures.SIGNATURE + b"".join(pictures._chunk(*part) for part in whole)
    found = dict(pictures._chunks(pictures.squeezed_png(data)))
    assert found[b"IHDR"] == struct.pack(">II", 4, 3) + pictures.EIGHT_BIT_RGB
    plain = np.frombuffer(zlib.decompress(found[b"IDAT"]), np.uint8).reshape(3, 13)
    assert (plain[:, 0] == 0).all() and (plain[:, 1:].reshape(3, 4, 3) == pixels[..., :3]).all()
    assert pictures.squeezed_png(pictures.squeezed_png(data)) == pictures.squeezed_png(data)
    assert pictures.squeezed_png(b"no picture") == b"no picture"
