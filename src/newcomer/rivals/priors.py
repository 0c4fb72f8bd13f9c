"""The priors of rivals, each learned from partial logs of one-hot actions: answers (N, A) and where they are.

With x_na the answer of person n to action a, v the pooled within-action variance, and noise v / 2 (logs in which nobody
meets an action twice cannot separate noise from the per-action effect, so half of v is called noise, and s0^2 = v / 2
the effect):

    pooled      N(m, s0^2 I)            m the action means: ridge regression towards the mean person
    HierTS      N(m, V + s0^2 I)        m, V the posterior of the mean person under mu_a ~ N(g, t^2), diagonal here
                (Hong et al. 2022, arXiv 2111.06929; for one newcomer after the logs also AdaTS, arXiv 2107.06196);
                MetaTS (Kveton et al. 2021, arXiv 2102.06129) draws mu ~ N(m, V) once and believes N(mu, s0^2 I)
    ebm         N(m, S), S_ab = mean of (x_na - m_a)(x_nb - m_b) over people who have both, less the noise on the
                diagonal, negative eigenvalues set to zero (after Jiang and Zhu 2025, arXiv 2510.26284, whose estimate
                takes the least squares of every person, which partial logs do not have)
    EM          N(m, S) of greatest likelihood from the cells that are there, some steps from S = s0^2 I
    dTS         N(m, S) with S the covariance of the generative chain of L linear denoisers (Aouali 2025, arXiv
                2402.10028, linear-Gaussian case), pre-trained on people imputed by EM

A diffusion of x_0 with x_l = sqrt(1 - b_l) x_(l-1) + sqrt(b_l) noise has, for Gaussian x_0 of covariance C_0, the
covariances C_l = (1 - b_l) C_(l-1) + b_l I; its best linear denoiser is W_l = sqrt(1 - b_l) C_(l-1) C_l^-1. The chain
psi_L ~ N(0, I), psi_(l-1) | psi_l ~ N(W_l psi_l, b~_l I) then generates beta = m + scale psi_0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from newcomer.arrays import Bools, Floats
from newcomer.evaluation.recommenders import recommender_table
from newcomer.logs.logs import Logs
from newcomer.rivals.gaussian import Prior

LASTING = 0.5  # of an answer's variance, where logs have no repeats to tell it by
STEPS, LAYERS, SCHEDULE = 20, 40, (1e-4, 0.5)  # of EM; of the diffusion, and its least and largest b_l
LEAST = 1e-9


@dataclass(frozen=True, eq=False)
class Partial:
    """Answers (N, A) of logged people, zero where there are none, and where there are some (N, A)."""

    answers: Floats
    met: Bools

    @classmethod
    def of(cls, logs: Logs) -> Partial:
        """From logs whose actions have ids; an action met twice counts by the mean of its rewards."""
        return cls(*recommender_table(logs))

    @cached_property
    def count(self) -> Floats:
        """People (A,) who have each action, at least one."""
        return np.asarray(np.maximum(self.met.sum(axis=0), 1), dtype=np.float64)

    @cached_property
    def mean(self) -> Floats:
        """Mean answer (A,) of each action; that of all answers where there is none."""
        overall = self.answers[self.met].mean() if self.met.any() else 0.0
        return np.where(self.met.any(axis=0), np.where(self.met, self.answers, 0.0).sum(axis=0) / self.count, overall)

    @cached_property
    def centred(self) -> Floats:
        """Answers less the mean of their action (N, A), zero where there are none."""
        return np.where(self.met, self.answers - self.mean, 0.0)

    @cached_property
    def variance(self) -> float:
        """The pooled within-action variance v."""
        free = self.met.sum() - self.met.any(axis=0).sum()
        return max(float(np.square(self.centred).sum() / max(free, 1)), LEAST)

    @property
    def noise(self) -> float:
        """The part of it that is called noise."""
        return (1.0 - LASTING) * self.variance

    @property
    def lasting(self) -> float:
        """The variance of the per-action effect, s0^2."""
        return LASTING * self.variance


def pooled(logged: Partial) -> Prior:
    """The mean person, known, and every action by itself."""
    return Prior(logged.mean, logged.lasting * np.eye(len(logged.mean)), logged.noise)


def hierarchical(logged: Partial) -> Prior:
    """HierTS and AdaTS; `unsure` is the hyper-posterior's variance V (A,)."""
    centre, error = float(logged.mean.mean()), logged.variance / logged.count
    spread = max(float(logged.mean.var(ddof=1) - error.mean()), LEAST)
    # Nobody has an action twice, so that its answers are independent: variance v around mu_a ~ N(centre, spread).
    seen = np.where(logged.met.any(axis=0), 1.0 / error, 0.0)
    unsure = 1.0 / (1.0 / spread + seen)
    mean = unsure * (centre / spread + seen * logged.mean)
    return Prior(mean, np.diag(unsure + logged.lasting), logged.noise, unsure)


def meta(logged: Partial) -> Prior:
    """MetaTS: the task covariance alone, around a mean that is drawn for each newcomer."""
    prior = hierarchical(logged)
    return replace(prior, covariance=logged.lasting * np.eye(len(prior.mean)))


def empirical(logged: Partial) -> Prior:
    """ebmTS and ebmUCB: mean and full covariance by moments."""
    together = logged.met.T.astype(np.float64) @ logged.met
    moments = logged.centred.T @ logged.centred / np.maximum(together, 1.0)
    values, vectors = np.linalg.eigh(moments - logged.noise * np.eye(len(moments)))
    return Prior(logged.mean, vectors * np.maximum(values, 0.0) @ vectors.T, logged.noise)


def likeliest(logged: Partial, steps: int = STEPS) -> Prior:
    """Mean and full covariance by EM."""
    prior = pooled(logged)
    for _ in range(steps):
        means, left = imputed(logged, prior)
        mean = means.mean(axis=0)
        centred = means - mean
        prior = replace(prior, mean=mean, covariance=(centred.T @ centred + left) / len(means))
    return prior


def imputed(logged: Partial, prior: Prior) -> tuple[Floats, Floats]:
    """Posterior means (N, A) of all people under a prior, and the sum of their posterior covariances (A, A)."""
    means, left = np.empty(logged.answers.shape), np.zeros(prior.covariance.shape)
    for person, met in enumerate(logged.met):
        places = np.flatnonzero(met)
        shared = prior.covariance[:, places]
        gain = np.linalg.solve(shared[places] + prior.noise * np.eye(len(places)), shared.T).T
        means[person] = prior.mean + gain @ (logged.answers[person, places] - prior.mean[places])
        left += prior.covariance - gain @ shared.T
    return means, left


def diffused(logged: Partial, layers: int = LAYERS, known: Prior | None = None) -> Prior:
    """dTS, linear: the prior that the chain of denoisers generates; `known` is EM's, if it was made before."""
    prior = likeliest(logged) if known is None else known
    scale = max(float(np.trace(prior.covariance)) / len(prior.mean), LEAST)
    chain = denoisers(prior.covariance / scale, layers)
    generated = np.eye(len(prior.mean))
    for weights, variance in reversed(chain):
        generated = weights @ generated @ weights.T + variance * np.eye(len(generated))
    return replace(prior, covariance=scale * (generated + generated.T) / 2.0)


def denoisers(covariance: Floats, layers: int) -> list[tuple[Floats, float]]:
    """W_l (A, A) and b~_l of every layer, from the data's side to the noise's."""
    identity, chain, kept = np.eye(len(covariance)), [], 1.0
    for beta in np.linspace(*SCHEDULE, layers):
        noised = (1.0 - beta) * covariance + beta * identity
        weights = np.sqrt(1.0 - beta) * np.linalg.solve(noised, covariance).T
        before, kept = kept, kept * (1.0 - beta)
        chain.append((weights, float(beta * (1.0 - before) / (1.0 - kept))))
        covariance = noised
    return chain
