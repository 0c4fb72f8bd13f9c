"""Prometheus metrics of the service: requests, latency, decisions by arm, rewards, errors of the store.

A counter of Prometheus takes a lock each time, which a decide would feel; what every decide counts is noted in plain
numbers, and poured into the counters many at a time, and when somebody looks.
"""

from __future__ import annotations

from collections import Counter as Tally

from newcomer.errors import MissingExtra

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
except ImportError as error:
    raise MissingExtra.of("serve", purpose="metrics") from error

ARMS = ("treated", "control", "incumbent", "random")
TOGETHER = 256  # requests that are poured at once
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class Metrics:
    """Counters of one service; no id of a user or an action is ever a label."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter("newcomer_requests", "Requests answered", ["route", "status"], registry=own)
        self.seconds = Histogram("newcomer_request_seconds", "Time to answer", ["route"], buckets=SECONDS, registry=own)
        self.decisions = Counter("newcomer_decisions", "Decisions made", ["arm"], registry=own)
        self.rewards = Counter("newcomer_rewards", "Rewards taken", ["status"], registry=own)
        self.defaults = Counter("newcomer_defaults", "Default rewards given", registry=own)
        self.store_errors = Counter("newcomer_store_errors", "Requests that the store failed", registry=own)
        self.generation = Gauge("newcomer_generation", "The generation of models that decides", registry=own)
        self.policy_seconds = Counter("newcomer_policy_seconds", "Time spent in policies", registry=own)

        self.decided, self.policy_spent = dict.fromkeys(ARMS, 0), 0.0  # since they were poured
        self._answers: list[tuple[str, int, float]] = []  # route, status, seconds

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._answers.append((route, status, seconds))
        if len(self._answers) >= TOGETHER:
            self._pour()

    def _pour(self) -> None:
        """Have the counters count what was noted."""
        for (route, status), count in Tally((route, status) for route, status, _ in self._answers).items():
            self.requests.labels(route, status).inc(count)
        timed = {route: self.seconds.labels(route).observe for route in {answer[0] for answer in self._answers}}
        for route, _, seconds in self._answers:
            timed[route](seconds)
        self._answers.clear()
        for arm, count in self.decided.items():
            self.decisions.labels(arm).inc(count)
            self.decided[arm] = 0
        self.policy_seconds.inc(self.policy_spent)
        self.policy_spent = 0.0

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        self._pour()
        return generate_latest(self.registry)
