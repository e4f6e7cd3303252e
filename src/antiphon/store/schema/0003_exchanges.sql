-- Strict ancestors by depth: the root's row is ancestor_0. A tree is one range of the index of its root's depth.
ALTER TABLE sessions ADD COLUMN ancestor_0 BIGINT;
ALTER TABLE sessions ADD COLUMN ancestor_1 BIGINT;
ALTER TABLE sessions ADD COLUMN ancestor_2 BIGINT;
ALTER TABLE sessions ADD COLUMN ancestor_3 BIGINT;
ALTER TABLE sessions ADD COLUMN ancestor_4 BIGINT;
CREATE INDEX sessions_by_ancestor_0 ON sessions (ancestor_0, updated_at, id) WHERE ancestor_0 IS NOT NULL;
CREATE INDEX sessions_by_ancestor_1 ON sessions (ancestor_1, updated_at, id) WHERE ancestor_1 IS NOT NULL;
CREATE INDEX sessions_by_ancestor_2 ON sessions (ancestor_2, updated_at, id) WHERE ancestor_2 IS NOT NULL;
CREATE INDEX sessions_by_ancestor_3 ON sessions (ancestor_3, updated_at, id) WHERE ancestor_3 IS NOT NULL;
CREATE INDEX sessions_by_ancestor_4 ON sessions (ancestor_4, updated_at, id) WHERE ancestor_4 IS NOT NULL;

-- What a run is to an exchange, and how far the chain of sends has come that it belongs to.
ALTER TABLE runs ADD COLUMN exchange TEXT;
ALTER TABLE runs ADD COLUMN partner BIGINT;
ALTER TABLE runs ADD COLUMN chain TEXT;
ALTER TABLE runs ADD COLUMN hops INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN has_sent SMALLINT NOT NULL DEFAULT 0;
-- Where the run's reply goes, if that is another place than its session's.
ALTER TABLE runs ADD COLUMN place TEXT;
CREATE INDEX runs_by_chain ON runs (chain, input_tokens, output_tokens) WHERE chain IS NOT NULL;

-- One message from a session to another, the turns that follow, and the announce step.
CREATE TABLE exchanges (
  id TEXT PRIMARY KEY,
  origin TEXT NOT NULL UNIQUE,
  origin_run TEXT,
  requester BIGINT NOT NULL REFERENCES sessions(id),
  requester_incarnation TEXT NOT NULL,
  target BIGINT NOT NULL REFERENCES sessions(id),
  target_incarnation TEXT NOT NULL,
  principal TEXT NOT NULL,
  chain TEXT NOT NULL,
  hops INTEGER NOT NULL,
  request TEXT NOT NULL,
  request_run TEXT NOT NULL,
  stage TEXT NOT NULL,
  turn INTEGER NOT NULL DEFAULT 0,
  max_turns INTEGER NOT NULL,
  max_chain_tokens BIGINT NOT NULL,
  is_awaited SMALLINT NOT NULL,
  wait_until BIGINT,
  is_withheld SMALLINT NOT NULL DEFAULT 0,
  first_reply TEXT,
  latest_reply TEXT,
  code TEXT,
  created_at BIGINT NOT NULL,
  ended_at BIGINT
) $without_rowid;
CREATE INDEX exchanges_open ON exchanges (origin_run) WHERE stage = 'answered';
CREATE INDEX exchanges_by_requester ON exchanges (requester);
CREATE INDEX exchanges_by_target ON exchanges (target);

-- What is to leave by a channel: sent at least once, under a stable id, in the order of its place.
CREATE TABLE deliveries (
  id TEXT PRIMARY KEY,
  session BIGINT NOT NULL REFERENCES sessions(id),
  incarnation TEXT NOT NULL,
  run_id TEXT,
  channel TEXT NOT NULL,
  recipient TEXT NOT NULL,
  account_id TEXT,
  thread_id TEXT,
  text TEXT NOT NULL,
  status TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  due_at BIGINT NOT NULL,
  process TEXT,
  platform_id TEXT,
  error TEXT,
  code TEXT,
  created_at BIGINT NOT NULL,
  ended_at BIGINT
) $without_rowid;
CREATE INDEX deliveries_waiting ON deliveries (channel, due_at, id) WHERE status IN ('queued', 'claimed');
CREATE INDEX deliveries_by_place ON deliveries (channel, recipient, id) WHERE status IN ('queued', 'claimed');
CREATE INDEX deliveries_by_status ON deliveries (status, id);
CREATE INDEX deliveries_by_session ON deliveries (session);
