-- When the session's next checkpoint is due; NULL for none.
ALTER TABLE sessions ADD COLUMN checkpoint_at BIGINT;
-- How many of the completed turns its last successful checkpoint covers.
ALTER TABLE sessions ADD COLUMN covered_turns BIGINT NOT NULL DEFAULT 0;
-- Messages of a group that started no run and that no checkpoint covers.
ALTER TABLE sessions ADD COLUMN untriggered_count BIGINT NOT NULL DEFAULT 0;
UPDATE sessions SET covered_turns = turn_count;
CREATE INDEX sessions_checkpoint ON sessions (checkpoint_at) WHERE checkpoint_at IS NOT NULL;

-- One row an incarnation that had a checkpoint, or waits for one.
CREATE TABLE checkpoints (
  incarnation TEXT PRIMARY KEY,
  session BIGINT NOT NULL REFERENCES sessions(id),
  -- The cursor: the last event that a successful checkpoint covers.
  through_seq BIGINT NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0,
  -- After a failure: when the same range is tried again.
  again_at BIGINT,
  -- Asked for, or left by a reset: why, by whom, and when to look at it.
  asked TEXT,
  asked_run TEXT,
  asked_by TEXT,
  look_at BIGINT,
  -- At work: why, up to which event, and what its success covers.
  reason TEXT,
  run TEXT,
  started_seq BIGINT,
  started_at BIGINT,
  reads_seq BIGINT,
  turns BIGINT NOT NULL DEFAULT 0,
  untriggered BIGINT NOT NULL DEFAULT 0,
  process TEXT,
  fence INTEGER NOT NULL DEFAULT 0,
  attempt INTEGER NOT NULL DEFAULT 0,
  model TEXT,
  principal TEXT,
  input_tokens BIGINT NOT NULL DEFAULT 0,
  output_tokens BIGINT NOT NULL DEFAULT 0,
  cached_tokens BIGINT NOT NULL DEFAULT 0,
  cost_microusd BIGINT,
  steps BIGINT NOT NULL DEFAULT 0
) $without_rowid;
CREATE INDEX checkpoints_by_session ON checkpoints (session);
CREATE INDEX checkpoints_open ON checkpoints (look_at) WHERE look_at IS NOT NULL;
-- What checkpoints used, beside what turns did.
CREATE INDEX runs_checkpoints ON runs (ended_on, session) WHERE purpose = 'checkpoint';
