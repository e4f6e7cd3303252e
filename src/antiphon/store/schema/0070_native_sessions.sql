-- What an external harness calls its own session behind an incarnation of ours. Contract: foreign_agents 2.
CREATE TABLE native_sessions (
  incarnation TEXT NOT NULL PRIMARY KEY,
  -- The number of our session.
  session BIGINT NOT NULL,
  agent_id TEXT NOT NULL,
  -- Its id there.
  native_id TEXT NOT NULL,
  -- The newest entry of our log that it was prompted with.
  seen_seq BIGINT NOT NULL,
  -- The run whose turn began there last.
  run TEXT NOT NULL
) $without_rowid;
CREATE INDEX native_sessions_of ON native_sessions (session);
