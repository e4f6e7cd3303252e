-- Calls of tools that a person must allow before they run. `calls` is JSON, with what was asked and what was decided.
CREATE TABLE approvals (
  id TEXT PRIMARY KEY,
  session BIGINT NOT NULL REFERENCES sessions(id),
  incarnation TEXT NOT NULL,
  run TEXT,
  origin TEXT,
  agent_id TEXT NOT NULL,
  principal TEXT NOT NULL,
  state TEXT NOT NULL,
  calls TEXT NOT NULL,
  is_parked SMALLINT NOT NULL DEFAULT 0,
  asked_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  decided_at BIGINT,
  decided_by TEXT,
  begun_at BIGINT,
  outcome TEXT,
  note TEXT
) $without_rowid;
CREATE INDEX approvals_due ON approvals (expires_at) WHERE state = 'pending';
CREATE INDEX approvals_pending ON approvals (session, id) WHERE state = 'pending';
CREATE INDEX approvals_by_run ON approvals (run) WHERE run IS NOT NULL;
CREATE UNIQUE INDEX approvals_by_origin ON approvals (origin) WHERE origin IS NOT NULL;

-- The newest request of a run, also of the run that it continues.
ALTER TABLE runs ADD COLUMN approval TEXT;
ALTER TABLE sessions ADD COLUMN pending_approvals BIGINT NOT NULL DEFAULT 0;

-- A run that waits for an approval lets others of its session work once it is parked.
DROP INDEX runs_active;
CREATE UNIQUE INDEX runs_active ON runs (session) WHERE status IN ('running', 'awaiting_approval') AND is_parked = 0;
