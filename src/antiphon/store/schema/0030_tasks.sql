-- Tasks: what agents do at set times, in whose name, and where their results go. Contract: tasks 1, 2.
CREATE TABLE tasks (
  id TEXT PRIMARY KEY,
  agent_id TEXT NOT NULL,
  maker TEXT NOT NULL,
  -- The session in which it was made.
  session BIGINT NOT NULL,
  name TEXT NOT NULL,
  prompt TEXT NOT NULL,
  level SMALLINT NOT NULL,
  compartments BIGINT NOT NULL,
  integrity SMALLINT NOT NULL,
  person TEXT,
  place TEXT,
  schedule TEXT NOT NULL,
  missed TEXT NOT NULL,
  grace BIGINT NOT NULL,
  limits TEXT NOT NULL,
  keeps_context SMALLINT NOT NULL,
  may_consult SMALLINT NOT NULL,
  is_sandboxed SMALLINT NOT NULL,
  state TEXT NOT NULL,
  why TEXT,
  next_at BIGINT,
  errors BIGINT NOT NULL,
  runs BIGINT NOT NULL,
  skips BIGINT NOT NULL,
  last_slot_at BIGINT,
  last_outcome TEXT,
  version BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX tasks_due ON tasks (next_at, id) WHERE state = 'active' AND next_at IS NOT NULL;
CREATE INDEX tasks_stopped ON tasks (updated_at, id) WHERE state = 'paused' AND why IS NOT NULL;
CREATE INDEX tasks_of_session ON tasks (session, id);
CREATE INDEX tasks_of_maker ON tasks (maker, state, id);

-- The times at which tasks were due or were run by hand. The key is what makes a task fire once at a time.
CREATE TABLE task_slots (
  task TEXT NOT NULL,
  slot_at BIGINT NOT NULL,
  is_manual SMALLINT NOT NULL,
  run TEXT,
  missed BIGINT NOT NULL,
  outcome TEXT,
  why TEXT,
  fired_at BIGINT NOT NULL,
  ended_at BIGINT,
  PRIMARY KEY (task, slot_at, is_manual)
) $without_rowid;
CREATE UNIQUE INDEX task_slots_run ON task_slots (run) WHERE run IS NOT NULL;
CREATE INDEX task_slots_open ON task_slots (task) WHERE outcome IS NULL;
CREATE INDEX task_slots_begun ON task_slots (task, fired_at) WHERE run IS NOT NULL;

-- The task behind a run, also across sends and spawns.
ALTER TABLE runs ADD COLUMN task TEXT;
ALTER TABLE exchanges ADD COLUMN task TEXT;
ALTER TABLE reports ADD COLUMN task TEXT;
CREATE INDEX runs_of_task ON runs (task, created_at, input_tokens, output_tokens, cost_microusd) WHERE task IS NOT NULL;
-- The only task whose calls it allows; NULL for those that a person's messages cause.
ALTER TABLE standing_approvals ADD COLUMN task TEXT;
CREATE INDEX standing_approvals_of_task ON standing_approvals (task) WHERE task IS NOT NULL;
