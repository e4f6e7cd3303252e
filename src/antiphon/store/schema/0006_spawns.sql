-- What a run owes to the session that spawned its own, how long it may take, and how it waits for others.
ALTER TABLE runs ADD COLUMN report TEXT;
ALTER TABLE runs ADD COLUMN announces TEXT;
ALTER TABLE runs ADD COLUMN has_spawned SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN has_attachments SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN time_limit BIGINT;
ALTER TABLE runs ADD COLUMN wait_call TEXT;
ALTER TABLE runs ADD COLUMN is_yielding SMALLINT NOT NULL DEFAULT 0;
-- A parked run has ended, and waits for its children; another run then continues it.
ALTER TABLE runs ADD COLUMN is_parked SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN continued_by TEXT;
ALTER TABLE runs ADD COLUMN continues TEXT;
CREATE INDEX runs_parked ON runs (deadline, session) WHERE is_parked = 1;
CREATE INDEX runs_by_report ON runs (report) WHERE report IS NOT NULL;

-- One row a child: how it was spawned, and what becomes of it afterwards.
CREATE TABLE spawns (
  child BIGINT PRIMARY KEY REFERENCES sessions(id),
  origin TEXT NOT NULL UNIQUE,
  run TEXT NOT NULL,
  request TEXT,
  task TEXT NOT NULL,
  mode TEXT NOT NULL,
  cleanup TEXT NOT NULL,
  time_limit BIGINT,
  archive_after BIGINT,
  attach_as TEXT,
  receipt TEXT,
  due_at BIGINT,
  kept_until BIGINT,
  created_at BIGINT NOT NULL
) $without_rowid;
CREATE INDEX spawns_due ON spawns (due_at) WHERE due_at IS NOT NULL;

-- Files for a child's workspace, until they are written there and its work has ended.
CREATE TABLE attachments (
  child BIGINT NOT NULL REFERENCES sessions(id),
  name TEXT NOT NULL,
  mime_type TEXT,
  sha256 TEXT NOT NULL,
  data $blob NOT NULL,
  PRIMARY KEY (child, name)
) $without_rowid;

-- One row for each result that a child owes: who gets it, and how far it came.
CREATE TABLE reports (
  id TEXT PRIMARY KEY,
  run TEXT NOT NULL,
  child BIGINT NOT NULL REFERENCES sessions(id),
  requester BIGINT,
  requester_incarnation TEXT,
  origin_run TEXT,
  is_from_outside SMALLINT NOT NULL DEFAULT 0,
  waiter TEXT,
  place TEXT,
  principal TEXT NOT NULL,
  stage TEXT NOT NULL,
  is_taken SMALLINT NOT NULL DEFAULT 0,
  created_at BIGINT NOT NULL,
  ended_at BIGINT
) $without_rowid;
CREATE INDEX reports_open ON reports (requester, id) WHERE stage = 'open';
CREATE INDEX reports_by_origin ON reports (origin_run);
CREATE INDEX reports_by_waiter ON reports (waiter) WHERE waiter IS NOT NULL;
CREATE INDEX reports_by_child ON reports (child);
CREATE INDEX reports_by_requester ON reports (requester);
