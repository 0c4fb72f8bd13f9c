"""What the paper's captions claim, and whether the tables bear it out: the answers of the verdicts follow from these.

`CAPTIONS` quotes of each caption the sentence that claims something. `comparisons` reads verbs and rivals
out of a sentence, so that a test can hold our wording of a claim against the caption's; `answer` asks the tables for
every one of them, newcomer by newcomer (`experiments.paired`):

* *no worse*: not clearly worse; *outperform*: clearly better. Where a caption says "all variants" every radius at every
  tau has to be so; else ProBALL at the smallest tau, which keeps it in the subspace, has to;
* *approach*: with the largest N within a tenth of the line that is approached, and nearer to it than with the least N;
* *best*: of the three radii martingale Bernstein is nowhere behind, and somewhere ahead.

A figure is "reproduced" where all of it holds in all of its worlds, "not reproduced" where nothing does in any, and
else "partly".
"""

from __future__ import annotations

import re
from pathlib import Path

from experiments.paired import Ends, Line
from newcomer.paper.lines import KINDS

ALL_VARIANTS = "all variants"
CAPTIONS = {
    "main": "ProBALL-UCB outperforms all other algorithms, and approaches the performance of LinUCB when Hoeffding "
    "confidence sets are used.",
    "eigenvalues": "Notice the drop after 18 eigenvalues.",
    "eigenvalues-log": "Notice the drop after 18 eigenvalues.",
    "simulation-ablation": "All variants perform no worse than LinUCB, with martingale Bernstein performing the best.",
    "simulation-ts": "All variants perform no worse than LinUCB and outperform the TS algorithms, with martingale "
    "Bernstein performing the best.",
    "movielens-together": "ProBALL-UCB outperforms LinUCB, and ProBALL-TS outperforms MixTS and mmTS.",
    "movielens-ucb-regret": "All variants of ProBALL-UCB perform no worse than LinUCB, and outperform mUCB and mmUCB.",
    "movielens-ucb-rating": "ProBALL-UCB performs no worse than LinUCB, and outperforms mUCB and mmUCB.",
    "movielens-ts-regret": "All variants of ProBALL-TS outperform TS, mmTS, and MixTS.",
    "movielens-ts-rating": "All variants of ProBALL-TS outperform TS, mmTS, and MixTS.",
    "lowdim-regret": "When tau is small enough, all variants of ProBALL-UCB perform no worse than low-dimensional "
    "LinUCB, and outperform mUCB and mmUCB, on ground truth features.",
    "lowdim-rating": "When tau is small enough, all variants of ProBALL-UCB perform no worse than low-dimensional "
    "LinUCB, and outperform mUCB and mmUCB, on ground truth features.",
    "truth-regret": "All variants of ProBALL-UCB perform no worse than LinUCB, and outperform mUCB and mmUCB.",
    "truth-rating": "All variants of ProBALL-UCB perform no worse than LinUCB, and outperform mUCB and mmUCB.",
    "subspace-error": "This shows that the error of SOLD indeed decreases very quickly in practice.",
    "regret-vs-n-ucb": "With a low enough tau, the regret of ProBALL-UCB approaches the regret of LinUCB on "
    "ground-truth low-dimensional features.",
    "regret-vs-n-ts": "With a low enough tau, the regret of ProBALL-TS approaches the regret of TS on ground-truth "
    "low-dimensional features.",
}
COMPARED = tuple(name for name in CAPTIONS if name not in ("main", "eigenvalues", "eigenvalues-log", "subspace-error"))
ALONE = ("drop after 18", "decreases", "quickly")  # what is said of no rival
_VERB = re.compile(r"no worse than|outperform|approach|martingale Bernstein (?:is|performing) (?:the )?best")
_RIVAL = re.compile(r"all other algorithms|TS algorithms|\b(?:mmUCB|mUCB|LinUCB|MixTS|mmTS|mTS|TS)\b")
_CLASSES = {"TS algorithms": ("LinTS", "mTS", "mmTS", "MixTS"), "TS": ("LinTS",)}


def comparisons(sentence: str) -> set[tuple[str, str]]:
    """Every verb of a claim with every rival that it is about.

    >>> sorted(comparisons("It is no worse than LinUCB and outperforms mUCB and mmUCB."))
    [('no worse than', 'LinUCB'), ('outperform', 'mUCB'), ('outperform', 'mmUCB')]
    """
    verbs = list(_VERB.finditer(sentence))
    ends = [*(verb.start() for verb in verbs), len(sentence)][1:]
    found = {(word, "") for word in ALONE if word in sentence}
    for verb, end in zip(verbs, ends, strict=True):
        if verb.group().startswith("martingale"):
            found.add(("best", "martingale Bernstein"))
            continue
        subjects = re.split(r"[;.]| and ProBALL", sentence[verb.end() : end])  # up to the subject of the next verb
        found |= {(verb.group(), rival) for rival in _RIVAL.findall(subjects[0])}
    return found


def held(results: Path, name: str) -> dict[tuple[str, str, str], bool]:
    """Whether each comparison of a caption holds in each world, by world, verb and rival."""
    ends = Ends.of(results, name, "reward" if name.endswith("rating") else "regret")
    found = {}
    for world in ends.newcomers["world"].unique(maintain_order=True):
        for verb, rival in sorted(comparisons(CAPTIONS[name])):
            check = {"best": _best, "approach": _approaches}.get(verb, _compared)
            found[world, verb, rival] = check(ends, name, world, verb, rival)
    return found


def answer(results: Path, name: str) -> str:
    """What follows for the verdict."""
    outcomes = held(results, name).values()
    return "reproduced" if all(outcomes) else "partly" if any(outcomes) else "not reproduced"


def _compared(ends: Ends, name: str, world: str, verb: str, rival: str) -> bool:
    version = "ProBALL-TS" if rival.endswith("TS") and "ProBALL-TS" in CAPTIONS[name] else "ProBALL-UCB"
    plain = "LinUCB, true features" if name.startswith("lowdim") and rival == "LinUCB" else rival
    rivals = [Line(policy) for policy in _CLASSES.get(plain, (plain,))]
    check = ends.no_worse if verb == "no worse than" else ends.ahead
    return all(check(world, line, other) for line in _meant(ends, name, world, version) for other in rivals)


def _meant(ends: Ends, name: str, world: str, version: str) -> list[Line]:
    """The lines that a caption speaks of."""
    sentence = CAPTIONS[name].lower()
    if ALL_VARIANTS not in sentence:
        return [ends.kept(world, version)]
    smallest = ends.taus(world)[-1]
    return [x for x in ends.variants(world, version) if "small enough" not in sentence or x.tau == smallest]


def _best(ends: Ends, name: str, world: str, verb: str, rival: str) -> bool:
    pairs = [
        (Line("M-ProBALL-UCB", tau), Line(f"{letter}-ProBALL-UCB", tau))
        for tau in ends.taus(world)
        for letter in KINDS
        if letter != "M"
    ]
    nowhere_behind = all(ends.no_worse(world, ours, other) for ours, other in pairs)
    return nowhere_behind and any(ends.ahead(world, ours, other) for ours, other in pairs)


def _approaches(ends: Ends, name: str, world: str, verb: str, rival: str) -> bool:
    version, users = ("ProBALL-TS" if rival == "TS" else "ProBALL-UCB"), ends.newcomers["users"]
    plain = f"{_CLASSES.get(rival, (rival,))[0]}, true features"

    def away(n: int) -> float:
        return abs(ends.gap(world, ends.kept(world, version, n), Line(plain, None, n)).mean)

    least, most = int(min(users)), int(max(users))
    return away(most) < min(away(least), 0.1 * ends.mean(world, Line(plain, None, most)))
