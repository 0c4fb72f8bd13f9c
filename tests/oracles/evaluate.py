"""Evaluation as its definitions say, a person, a row and a pair at a time."""

from __future__ import annotations

import numpy as np


def concordance(scores, rewards):
    """The share of pairs with different rewards that are in the right order; equal scores count half."""
    right, pairs = 0.0, 0
    for i in range(len(scores)):
        for j in range(i):
            if rewards[i] == rewards[j]:
                continue
            pairs += 1
            product = (scores[i] - scores[j]) * (rewards[i] - rewards[j])
            right += 1.0 if product > 0 else 0.5 if product == 0 else 0.0
    return right / pairs if pairs else np.nan


def ridge(known, rewards, asked, mu):
    """Ridge regression in the space of features: x^T (X^T X + mu I)^-1 X^T r."""
    system = known.T @ known + mu * np.eye(known.shape[1])
    return asked @ np.linalg.solve(system, known.T @ rewards)


def off_policy(history, policy, expects, ids, begin, end):
    """One person: rows begin..end-1, weights, doubly robust terms; history is rows of (action, reward, propensity)."""
    out = []
    for t in range(begin, min(end, len(history))):
        told = history[:t]
        both = []
        for one in (policy, expects):
            state = one.start(1)
            for action, reward, _ in told:
                one.update(state, reward=np.array([reward]), ids=np.array([action]))
            both.append(state)
        chances = policy.probabilities(both[0], ids=np.array(ids))[0]
        q = expects.scores(both[1], ids=np.array(ids))[0]
        action, reward, propensity = history[t]
        place = list(ids).index(action)
        weight = chances[place] / propensity
        out.append((reward, weight, weight * reward, chances @ q + weight * (reward - q[place])))
    return np.array(out)


def replay(policy, actions, rewards, order, rounds):
    """One person: the remaining rows are on offer, in this order; the reward of each round."""
    state, left, won = policy.start(1), list(order), []
    for _ in range(rounds):
        chosen = left[int(policy.choose(state, ids=np.array([[actions[row] for row in left]]))[0])]
        won.append(rewards[chosen])
        policy.update(state, reward=np.array([rewards[chosen]]), ids=np.array([actions[chosen]]))
        left.remove(chosen)
    return won


def als(centred, met, ridge, items, sweeps):
    """Explicit alternating least squares on dense tables, a user and an action at a time."""

    def solve(factors, answers, where):
        return np.array(
            [
                np.linalg.solve(factors[w].T @ factors[w] + ridge * np.eye(factors.shape[1]), factors[w].T @ a[w])
                for a, w in zip(answers, where, strict=True)
            ]
        )

    for _ in range(sweeps):
        users = solve(items, centred, met)
        items = solve(users, centred.T, met.T)
    return items
