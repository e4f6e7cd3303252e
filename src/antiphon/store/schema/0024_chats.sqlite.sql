-- A delivery may belong to no session: the answer to a command, a code for a stranger.
CREATE TABLE deliveries_new (
  id TEXT PRIMARY KEY,
  session BIGINT REFERENCES sessions(id),
  incarnation TEXT,
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
  ended_at BIGINT,
  level SMALLINT NOT NULL DEFAULT 0,
  compartments BIGINT NOT NULL DEFAULT 0,
  integrity SMALLINT NOT NULL DEFAULT 0,
  person TEXT,
  parts TEXT,
  approval TEXT
) WITHOUT ROWID;
INSERT INTO deliveries_new (id, session, incarnation, run_id, channel, recipient, account_id, thread_id, text, status,
  attempts, due_at, process, platform_id, error, code, created_at, ended_at, level, compartments, integrity, person)
  SELECT id, session, incarnation, run_id, channel, recipient, account_id, thread_id, text, status,
  attempts, due_at, process, platform_id, error, code, created_at, ended_at, level, compartments, integrity, person
  FROM deliveries;
DROP TABLE deliveries;
ALTER TABLE deliveries_new RENAME TO deliveries;
CREATE INDEX deliveries_waiting ON deliveries (channel, due_at, id) WHERE status IN ('queued', 'claimed');
CREATE INDEX deliveries_by_place ON deliveries (channel, recipient, id) WHERE status IN ('queued', 'claimed');
CREATE INDEX deliveries_by_status ON deliveries (status, id);
CREATE INDEX deliveries_by_session ON deliveries (session);
CREATE INDEX deliveries_by_approval ON deliveries (approval) WHERE approval IS NOT NULL;
CREATE INDEX deliveries_streaming ON deliveries (run_id) WHERE status = 'streaming';
CREATE INDEX deliveries_ended ON deliveries (channel, recipient, ended_at) WHERE status IN ('sent', 'dead');
