"""Prometheus metrics of the service: requests, latency, decisions by arm, rewards, errors of the store."""

from __future__ import annotations

from newcomer.errors import MissingExtra

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
except ImportError as error:
    raise MissingExtra.of("serve", purpose="metrics") from error

ARMS = ("treated", "control", "incumbent", "random")
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class Metrics:
    """Counters of one service; no id of a user or an action is ever a label."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter("newcomer_requests", "Requests answered", ["route", "status"], registry=own)
        self.seconds = Histogram("newcomer_request_seconds", "Time to answer", ["route"], buckets=SECONDS, registry=own)
        self.decisions = Counter("newcomer_decisions", "Decisions made", ["arm"], registry=own)
        self.decided = {arm: self.decisions.labels(arm) for arm in ARMS}
        self.rewards = Counter("newcomer_rewards", "Rewards taken", ["status"], registry=own)
        self.defaults = Counter("newcomer_defaults", "Default rewards given", registry=own)
        self.store_errors = Counter("newcomer_store_errors", "Requests that the store failed", registry=own)
        self.generation = Gauge("newcomer_generation", "The generation of models that decides", registry=own)
        self.policy_seconds = Counter("newcomer_policy_seconds", "Time spent in policies", registry=own)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)
