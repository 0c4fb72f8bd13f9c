"""The tables of a store, as numbered steps that SQLite and PostgreSQL both take; a store knows how many it has taken.

A step is never changed once released: what comes later is another step. Who reads stores as logs knows how many there
are (`newcomer.logs.service_store.SCHEMA`). Times are seconds since 1970, ids of users are text, ids of actions JSON (so
that 7 and "7" stay apart), flags 0 or 1.

`events` is the truth: decisions, and observations of what the service did not decide. `place` is the number of the
change that brought an event's first value, and the order in which a user's state is folded; `change` is the number of
the last change, which exports are read by. `users.revision` begins anywhere, and counts changes to what was folded
already.
"""

from __future__ import annotations

FIRST = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE counter (id INTEGER PRIMARY KEY, value BIGINT NOT NULL);
INSERT INTO counter (id, value) VALUES (1, 0);
CREATE TABLE models (id TEXT PRIMARY KEY, file BYTEA NOT NULL, staged DOUBLE PRECISION NOT NULL, facts TEXT NOT
  NULL);
CREATE TABLE generations (generation BIGINT PRIMARY KEY, model TEXT NOT NULL, promoted DOUBLE PRECISION NOT NULL);
CREATE TABLE shares (version BIGINT PRIMARY KEY, random DOUBLE PRECISION NOT NULL, control DOUBLE PRECISION NOT
  NULL, incumbent DOUBLE PRECISION NOT NULL, set_at DOUBLE PRECISION NOT NULL);
CREATE TABLE repeatabilities (version BIGINT PRIMARY KEY, model TEXT NOT NULL, policy TEXT NOT NULL, told TEXT NOT
  NULL, made DOUBLE PRECISION NOT NULL);
CREATE TABLE users (id TEXT PRIMARY KEY, alias_of TEXT, arm TEXT, arm_probability DOUBLE PRECISION, shares BIGINT,
  arm_key TEXT, repeatability BIGINT, attributes TEXT, place BIGINT NOT NULL DEFAULT 0, revision BIGINT NOT NULL
  DEFAULT 0, outcomes BIGINT NOT NULL DEFAULT 0, mixed INTEGER NOT NULL DEFAULT 0, first_seen DOUBLE PRECISION NOT
  NULL);
CREATE INDEX users_alias ON users (alias_of) WHERE alias_of IS NOT NULL;
CREATE TABLE events (id TEXT PRIMARY KEY, user_id TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, model TEXT NOT NULL,
  arm TEXT NOT NULL, propensity DOUBLE PRECISION, action TEXT, position BIGINT, features BYTEA, candidates TEXT,
  excluded TEXT, slate TEXT, slot INTEGER NOT NULL DEFAULT 0, shadow TEXT, event TEXT, shown INTEGER NOT NULL
  DEFAULT 1, deadline DOUBLE PRECISION, status TEXT NOT NULL, reward DOUBLE PRECISION, place BIGINT, change BIGINT
  NOT NULL);
CREATE INDEX events_fold ON events (user_id, place);
CREATE INDEX events_change ON events (change);
CREATE INDEX events_deadline ON events (deadline) WHERE status = 'pending' AND deadline IS NOT NULL;
CREATE UNIQUE INDEX events_observed ON events (user_id, event) WHERE event IS NOT NULL;
CREATE TABLE reward_parts (event_id TEXT NOT NULL, part TEXT NOT NULL, user_id TEXT NOT NULL, value DOUBLE PRECISION
  NOT NULL, PRIMARY KEY (event_id, part));
CREATE INDEX reward_parts_user ON reward_parts (user_id);
CREATE TABLE requests (user_id TEXT NOT NULL, request TEXT NOT NULL, hash TEXT NOT NULL, response BYTEA NOT NULL, at
  DOUBLE PRECISION NOT NULL, PRIMARY KEY (user_id, request));
CREATE INDEX requests_at ON requests (at);
CREATE TABLE snapshots (user_id TEXT PRIMARY KEY, identity TEXT NOT NULL, place BIGINT NOT NULL, state BYTEA NOT
  NULL);
CREATE TABLE erased (hash TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL)
"""

# Sums of the lift (lift.py): as far as `reached` in the changes; rewards by interaction of users; sums of arms.
SECOND = """
ALTER TABLE users ADD COLUMN lift_out INTEGER NOT NULL DEFAULT 0;
CREATE TABLE lift (id INTEGER PRIMARY KEY, reached BIGINT NOT NULL, shift DOUBLE PRECISION);
INSERT INTO lift (id, reached) VALUES (1, 0);
CREATE TABLE lift_users (user_id TEXT PRIMARY KEY, version BIGINT NOT NULL, arm TEXT NOT NULL, rewards BYTEA NOT NULL,
  reached BIGINT NOT NULL);
CREATE TABLE lift_sums (version BIGINT NOT NULL, arm TEXT NOT NULL, users BIGINT NOT NULL, interactions BIGINT NOT NULL,
  rewarded BIGINT NOT NULL, sums BYTEA NOT NULL, PRIMARY KEY (version, arm))
"""


def migration_statements(step: str) -> tuple[str, ...]:
    """The statements of a step.

    >>> migration_statements("CREATE TABLE a (x TEXT);\\nCREATE TABLE b (x TEXT)")
    ('CREATE TABLE a (x TEXT)', 'CREATE TABLE b (x TEXT)')
    """
    return tuple(one.strip() for one in step.split(";") if one.strip())


STEPS = (migration_statements(FIRST), migration_statements(SECOND))
