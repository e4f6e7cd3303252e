-- Agents whose runners are given in code: without the code, their runs stay queued. Contract: foreign_agents 1.
CREATE TABLE code_agents (
  id TEXT PRIMARY KEY,
  -- The name of the runner.
  runner TEXT NOT NULL,
  seen_at BIGINT NOT NULL
) $without_rowid;
-- The newest state that the runner of an agent keeps in a session's incarnation. Contract: foreign_agents 1.
CREATE TABLE runner_states (
  id TEXT PRIMARY KEY,
  -- The session's number.
  session BIGINT NOT NULL,
  agent TEXT NOT NULL,
  incarnation TEXT NOT NULL,
  -- The event that says that it was saved.
  seq BIGINT NOT NULL,
  -- Compressed by zlib.
  content $blob NOT NULL,
  -- Bytes of the text.
  size BIGINT NOT NULL,
  level INTEGER NOT NULL,
  compartments BIGINT NOT NULL,
  integrity INTEGER NOT NULL,
  person TEXT,
  saved_at BIGINT NOT NULL,
  UNIQUE (session, agent)
);
