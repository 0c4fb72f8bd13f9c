"""One colour per policy, everywhere: charts, reports, pages.

Hues follow Okabe and Ito (2008) and Tol's schemes, which people with colour-vision deficiencies tell apart; the UCB and
the TS form of an algorithm are a darker and a lighter tone. A name with additions ("ProBALL-UCB, tau 5") has its
algorithm's colour; several such names in one picture differ by their dashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from zlib import crc32

BLUE, ORANGE, GREEN, GREY, INK = "#0072B2", "#D55E00", "#009E73", "#6B7280", "#3A4048"  # of what is no policy
COLOURS: Mapping[str, str] = {
    "LinUCB": "#4D4D4D",
    "LinTS": "#8C8C8C",
    "ProBALL-UCB": "#0072B2",
    "ProBALL-TS": "#56B4E9",
    "LOCAL-UCB": "#B0369B",
    "PriorUCB": "#D55E00",
    "PriorTS": "#E69F00",
    "PopulationMean": "#009E73",
    "EmpiricalArms": "#A6761D",
    "Uniform": "#BC9E82",
    "mUCB": "#332288",
    "mTS": "#8F8BD8",
    "mmUCB": "#661100",
    "mmTS": "#CC6677",
    "MixTS": "#999933",
    "true prior": "#000000",
    "true subspace": "#117733",
}
# Lines that are no policy: truths are black, rates grey; they need only differ from the policies beside them.
OTHERS: Mapping[str, str] = {
    "true beta": "#000000",
    "limit": "#000000",
    "SOLD": "#5E2D91",
    "PMF": "#7A6A00",
    "1/sqrt(N)": "#8C8C8C",
    "minimax rate": "#8C8C8C",
    "completed ratings": "#000000",
    "bound, as proven": "#000000",
    "bound, as printed": "#8C8C8C",
    "knowing nothing": "#BC9E82",
    "Reg_on": "#8C8C8C",
    "Reg_hyb": "#56B4E9",
    "Delta_off rate": "#8C8C8C",
}
# Predictors that an evaluation compares: what a policy expects has the policy's colour.
PREDICTORS: Mapping[str, str] = {
    "posterior": "#D55E00",
    "posterior without memory": "#E69F00",
    "SOLD's subspace": "#0072B2",
    "ridge": "#4D4D4D",
    "ALS fold-in": "#B0369B",
    "EASE fold-in": "#332288",
}
SPARE = ("#6A3D9A", "#B15928", "#17A2B8", "#E31A1C", "#1F4E9C", "#F781BF", "#2CA02C", "#A05195")
DASHES = ((1, 0), (6, 3), (2, 2), (10, 3, 2, 3), (12, 4), (4, 2, 1, 2))


def palette_name(name: str) -> str:
    """The known line that a name speaks of: the longest one it contains, spelling apart; else the name itself.

    >>> palette_name("proball ucb, tau 5"), palette_name("mine")
    ('ProBALL-UCB', 'mine')
    """
    plain = _plain(name)
    known = [line for line in (*COLOURS, *OTHERS) if _plain(line) in plain]
    return max(known, key=len) if known else name


def policy_colour(name: str) -> str:
    """The colour of a policy as #RRGGBB; an unknown name always gets the same spare one.

    >>> policy_colour("LinUCB"), policy_colour("LinUCB, warm")
    ('#4D4D4D', '#4D4D4D')
    """
    policy = palette_name(name)
    return COLOURS.get(policy) or OTHERS.get(policy) or SPARE[crc32(policy.encode()) % len(SPARE)]


def palette_colours(names: Iterable[str]) -> dict[str, str]:
    """Colours for the lines of one picture: each name's own, an unknown name moving on to a spare one still free.

    >>> len(set(palette_colours(["mine", "yours", "theirs"]).values()))
    3
    """
    chosen: dict[str, str] = {}
    for name in names:
        first, taken = policy_colour(name), set(chosen.values())
        if first in SPARE and first in taken:
            first = next((spare for spare in SPARE if spare not in taken), first)
        chosen[name] = first
    return chosen


def predictor_colours(names: Iterable[str]) -> dict[str, str]:
    """Colours for the predictors and policies of an evaluation: those of `PREDICTORS`, then as for policies.

    >>> predictor_colours(["PriorUCB", "ridge"])
    {'PriorUCB': '#D55E00', 'ridge': '#4D4D4D'}
    """
    return {name: PREDICTORS.get(name, colour) for name, colour in palette_colours(names).items()}


def palette_dashes(names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """A dash pattern for each line of one picture: solid, unless an earlier line has the same colour.

    >>> palette_dashes(["LinUCB", "LinUCB, warm"])
    {'LinUCB': (1, 0), 'LinUCB, warm': (6, 3)}
    """
    seen: dict[str, int] = {}
    patterns: dict[str, tuple[int, ...]] = {}
    for name, shade in palette_colours(names).items():
        patterns[name] = DASHES[seen.get(shade, 0) % len(DASHES)]
        seen[shade] = seen.get(shade, 0) + 1
    return patterns


def _plain(name: str) -> str:
    """Letters and digits alone, in lower case."""
    return "".join(letter for letter in name.lower() if letter.isalnum())
