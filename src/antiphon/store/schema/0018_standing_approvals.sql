-- Other calls from outside a run that asked for the same; each finds the request by its own origin.
CREATE TABLE approval_origins (
  origin TEXT PRIMARY KEY,
  session BIGINT NOT NULL,
  approval TEXT NOT NULL
) $without_rowid;
CREATE INDEX approval_origins_by_session ON approval_origins (session);

-- `is_due` from the yes for a call from outside a run until its outcome is stored; `begun_by` is the process that began it.
ALTER TABLE approvals ADD COLUMN is_due SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE approvals ADD COLUMN begun_by TEXT;
UPDATE approvals SET is_due = 1
  WHERE run IS NULL AND state = 'decided' AND outcome IS NULL AND calls LIKE '%"verdict":"once"%';
CREATE INDEX approvals_to_begin ON approvals (decided_at) WHERE is_due = 1;

-- What an owner allows always: calls of the tool with these arguments, or with these values of the named fields.
CREATE TABLE standing_approvals (
  id TEXT PRIMARY KEY,
  agent_id TEXT NOT NULL,
  principal TEXT NOT NULL,
  tool TEXT NOT NULL,
  definition TEXT NOT NULL,
  fields TEXT,
  arguments TEXT NOT NULL,
  run TEXT,
  approval TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  created_by TEXT NOT NULL
) $without_rowid;
CREATE INDEX standing_approvals_of ON standing_approvals (principal, agent_id);
