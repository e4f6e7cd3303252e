-- Threads that are bound to a sub-agent: each is a route, with who bound it, how long, and the place of its answers.
-- Contract: spawn 4.
CREATE TABLE thread_bindings (
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  peer TEXT NOT NULL,
  thread TEXT NOT NULL,
  -- The session's number.
  child BIGINT NOT NULL,
  -- The platform's present id of the chat.
  chat TEXT NOT NULL,
  bound_by TEXT NOT NULL,
  bound_at BIGINT NOT NULL,
  used_at BIGINT NOT NULL,
  -- In milliseconds; null for never.
  idle_ms BIGINT,
  max_age_ms BIGINT,
  ends_at BIGINT,
  PRIMARY KEY (channel, account, peer, thread)
) $without_rowid;
CREATE UNIQUE INDEX thread_bindings_by_child ON thread_bindings (child);
CREATE INDEX thread_bindings_due ON thread_bindings (ends_at) WHERE ends_at IS NOT NULL;
