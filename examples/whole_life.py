"""The whole life of a service that decides by name: fit, serve, save, load, a new film, a known user, a refit.

    python examples/whole_life.py

plays with real film ratings where they are at hand (NEWCOMER_DATA names the folder that holds ml-1m/), else with people
who do not exist. A service needs nothing but names of films and users: features, codes and matrices stay inside.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

import newcomer as nc
from newcomer.gain.verdict import decide_verdict

FILMS, PEOPLE = 100, 1500  # enough to see how it works, few enough to be quick


def ratings() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Who rated which film, and how: users, titles, stars."""
    folder = Path(os.environ.get("NEWCOMER_DATA", ".")) / "ml-1m"
    if not folder.is_dir():
        from newcomer.worlds.people import MadeUp

        table, titles = MadeUp.draw(PEOPLE, 40).world.table, np.array([f"film {number:02d}" for number in range(40)])
        user, film = np.divmod(np.arange(table.size), table.shape[1])
        kept = np.random.default_rng(0).random(table.size) < 0.4
        return user[kept], titles[film[kept]], table[user[kept], film[kept]]
    from newcomer.paper.worlds.ratings import read_ratings

    found = read_ratings(folder)
    often = np.argsort(-np.bincount(found.movie), kind="stable")[:FILMS]
    kept = np.isin(found.movie, often) & (found.user < PEOPLE)
    return found.user[kept], found.titles[found.movie[kept]], found.rating[kept]


def main() -> None:
    """Live it."""
    user, film, stars = ratings()
    old = user % 10 != 0  # everybody else comes later

    # Fit. The model carries its catalogue: from here on films are named, and nothing else.
    model = nc.fit(nc.Logs.from_arrays(user=user[old], action=film[old], reward=stars[old]))
    print(f"{len(model.action_ids)} films, {model.factor.shape[1]} shared directions of preference")
    print(*decide_verdict(model.evidence).sentences, sep="\n")

    # Serve by name. Three newcomers at once: a row each of what is on offer, and what came of the choices.
    policy = nc.PriorUCB(model)
    state = policy.start(3)
    rng = np.random.default_rng(0)
    events = []  # what a service writes down: who, what, how it went
    for _ in range(5):
        shelf = np.stack([rng.choice(model.action_ids, size=8, replace=False) for _ in range(3)])
        chosen = shelf[np.arange(3), policy.choose(state, ids=shelf)]
        reward = rng.integers(1, 6, size=3).astype(float)
        policy.update(state, ids=chosen, reward=reward)
        events += zip(range(3), chosen, reward, strict=True)
    print("after five films, the first newcomer is offered", shelf[0, policy.choose(state, ids=shelf)[0]])

    # Save and load, model and states: another process goes on where this one stopped.
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/films.newcomer")
        kept = state.to_bytes()
        policy = nc.PriorUCB(nc.load(f"{folder}/films.newcomer"))
        state = type(policy.start(0)).from_bytes(kept)

    # A film that opened today is no error: it is worth what the average film is, until people say otherwise.
    today = [*shelf[0], "A film that opened today"]
    print("a new film scores", policy.scores(state, ids=today, users=[0])[0, -1].round(2))
    policy.update(state, ids=["A film that opened today"], reward=[5.0], users=[0])
    print("and once seen and liked", policy.scores(state, ids=today, users=[0])[0, -1].round(2))

    # A known user: the history is folded in by one call, in any order, for as many users as there are.
    who = np.unique(user[~old])[:50]
    rows = np.isin(user, who)
    known = policy.start(len(who))
    policy.update(known, ids=film[rows], reward=stars[rows], users=np.searchsorted(who, user[rows]))
    print("a known user's best of eight:", shelf[0, policy.choose(known, ids=shelf[0], users=[0])[0]])

    # A refit: states belong to their model. The events that were written down move them, by the same one call.
    newer = nc.PriorUCB(nc.fit(nc.Logs.from_arrays(user=user, action=film, reward=stars)))
    moved = newer.start(3)
    people, films, rewards = (list(column) for column in zip(*events, strict=True))
    newer.update(moved, ids=films, reward=rewards, users=people)
    print("after the refit the first newcomer is offered", shelf[0, newer.choose(moved, ids=shelf)[0]])


if __name__ == "__main__":
    main()
