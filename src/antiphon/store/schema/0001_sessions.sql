-- One row a key. The row outlives a deletion, so that `last_seq` never starts again.
CREATE TABLE sessions (
  id $serial,
  key TEXT NOT NULL UNIQUE,
  agent_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  incarnation TEXT,
  last_seq BIGINT NOT NULL DEFAULT 0,
  first_seq BIGINT NOT NULL DEFAULT 1,
  status TEXT NOT NULL,
  deleted_at BIGINT,
  source_kind TEXT NOT NULL,
  source_interactive SMALLINT NOT NULL,
  source_platform TEXT,
  source_trigger_id TEXT,
  type TEXT NOT NULL,
  metadata TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  interacted_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  label TEXT,
  display_name TEXT,
  description TEXT,
  description_source TEXT,
  preview TEXT,
  message_count BIGINT NOT NULL DEFAULT 0,
  turn_count BIGINT NOT NULL DEFAULT 0,
  base_level SMALLINT NOT NULL DEFAULT 0,
  base_compartments BIGINT NOT NULL DEFAULT 0,
  base_integrity SMALLINT NOT NULL DEFAULT 0,
  clearance_level SMALLINT,
  clearance_compartments BIGINT,
  parent BIGINT REFERENCES sessions(id),
  depth SMALLINT NOT NULL DEFAULT 0,
  send_policy TEXT,
  delivery_channel TEXT,
  delivery_to TEXT,
  delivery_account_id TEXT,
  delivery_thread_id TEXT,
  model TEXT,
  thinking_level TEXT,
  verbose_level TEXT,
  context_tokens BIGINT NOT NULL DEFAULT 0,
  input_tokens BIGINT NOT NULL DEFAULT 0,
  output_tokens BIGINT NOT NULL DEFAULT 0,
  cached_tokens BIGINT NOT NULL DEFAULT 0,
  cost_microusd BIGINT,
  steps BIGINT NOT NULL DEFAULT 0,
  aborted_last_run SMALLINT NOT NULL DEFAULT 0
);
CREATE INDEX sessions_listed ON sessions (updated_at, id)
  WHERE deleted_at IS NULL AND status <> 'inactive';
CREATE INDEX sessions_listed_by_agent ON sessions (agent_id, updated_at, id)
  WHERE deleted_at IS NULL AND status <> 'inactive';
CREATE INDEX sessions_by_label ON sessions (label) WHERE label IS NOT NULL;
CREATE INDEX sessions_by_parent ON sessions (parent) WHERE parent IS NOT NULL;

-- A key's successive lives. `id` is the wire's sessionId.
CREATE TABLE incarnations (
  id TEXT PRIMARY KEY,
  session BIGINT NOT NULL REFERENCES sessions(id),
  first_seq BIGINT NOT NULL,
  last_seq BIGINT,
  started_at BIGINT NOT NULL,
  ended_at BIGINT,
  taint_level SMALLINT NOT NULL DEFAULT 0,
  taint_compartments BIGINT NOT NULL DEFAULT 0,
  taint_integrity SMALLINT NOT NULL DEFAULT 0,
  working_memory TEXT NOT NULL DEFAULT ''
) $without_rowid;
CREATE INDEX incarnations_by_session ON incarnations (session);

CREATE TABLE participants (
  session BIGINT NOT NULL REFERENCES sessions(id),
  principal TEXT NOT NULL,
  PRIMARY KEY (session, principal)
) $without_rowid;
CREATE INDEX participants_by_principal ON participants (principal);

-- The log: append-only, numbered 1..n in each session by the transaction that changes the state.
CREATE TABLE events (
  session BIGINT NOT NULL REFERENCES sessions(id),
  seq BIGINT NOT NULL,
  incarnation TEXT NOT NULL,
  type TEXT NOT NULL,
  role TEXT,
  created_at BIGINT NOT NULL,
  actor TEXT NOT NULL,
  run_id TEXT,
  message_id TEXT,
  level SMALLINT NOT NULL,
  compartments BIGINT NOT NULL,
  integrity SMALLINT NOT NULL,
  payload TEXT NOT NULL,
  PRIMARY KEY (session, seq)
) $without_rowid;
CREATE UNIQUE INDEX events_by_message_id ON events (session, message_id) WHERE message_id IS NOT NULL;

CREATE INDEX events_compacted ON events (session, seq) WHERE type = 'compacted';

-- The ledger: one row a run.
CREATE TABLE runs (
  id TEXT PRIMARY KEY,
  session BIGINT NOT NULL REFERENCES sessions(id),
  incarnation TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  seq BIGINT NOT NULL,
  newest_seq BIGINT NOT NULL,
  status TEXT NOT NULL,
  mode TEXT NOT NULL,
  principal TEXT NOT NULL,
  attempt INTEGER NOT NULL DEFAULT 0,
  fence INTEGER NOT NULL DEFAULT 0,
  created_at BIGINT NOT NULL,
  started_at BIGINT,
  ended_at BIGINT,
  deadline BIGINT,
  waiting_for TEXT,
  wait_until BIGINT,
  cancel_requested SMALLINT NOT NULL DEFAULT 0,
  reply TEXT,
  error TEXT,
  code TEXT,
  input_tokens BIGINT NOT NULL DEFAULT 0,
  output_tokens BIGINT NOT NULL DEFAULT 0,
  cached_tokens BIGINT NOT NULL DEFAULT 0,
  cost_microusd BIGINT,
  steps BIGINT NOT NULL DEFAULT 0,
  UNIQUE (session, seq)
) $without_rowid;
CREATE UNIQUE INDEX runs_active ON runs (session) WHERE status IN ('running', 'awaiting_approval');
CREATE INDEX runs_queued ON runs (session, seq) WHERE status = 'queued';
CREATE INDEX runs_newest ON runs (created_at, id);

-- What each agent spent in a UTC day; the daily cap reads it before every step.
CREATE TABLE daily_usage (
  day TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  tokens BIGINT NOT NULL,
  microusd BIGINT NOT NULL,
  PRIMARY KEY (day, agent_id)
) $without_rowid;

-- Hashes of what people and programs show to be let in.
CREATE TABLE tokens (
  hash TEXT PRIMARY KEY,
  kind TEXT NOT NULL,
  principal TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT,
  used_at BIGINT
) $without_rowid;
