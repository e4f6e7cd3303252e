-- Calls from outside a run that run once: with an `Idempotency-Key`, or after a yes. One that asked has the id of its request;
-- those that joined a request have none of their own. `is_due` from the begin or the yes until the outcome is stored.
CREATE TABLE calls (
  id TEXT PRIMARY KEY,
  origin TEXT,
  session BIGINT NOT NULL REFERENCES sessions(id),
  approval TEXT,
  sha256 TEXT NOT NULL DEFAULT '',
  is_due SMALLINT NOT NULL DEFAULT 0,
  begun_at BIGINT,
  begun_by TEXT,
  outcome TEXT,
  level SMALLINT NOT NULL DEFAULT 0,
  compartments BIGINT NOT NULL DEFAULT 0,
  integrity SMALLINT NOT NULL DEFAULT 0,
  person TEXT
) $without_rowid;

-- An origin that two merged callers used belongs to the request, which answered before.
INSERT INTO calls (id, origin, session, approval, is_due, begun_at, begun_by, outcome)
  SELECT a.id, a.origin, a.session, a.id, a.is_due, a.begun_at, a.begun_by, a.outcome FROM approvals a WHERE a.run IS NULL;
INSERT INTO calls (id, origin, session, approval)
  SELECT 'joined ' || o.origin, o.origin, o.session, o.approval FROM approval_origins o
  WHERE NOT EXISTS (SELECT 1 FROM calls k WHERE k.origin = o.origin);
INSERT INTO calls (id, origin, session, sha256, is_due, begun_at, begun_by, outcome, level, compartments, integrity, person)
  SELECT c.id, c.origin, c.session, c.sha256, CASE WHEN c.outcome IS NULL THEN 1 ELSE 0 END, c.begun_at, c.begun_by, c.outcome,
    c.level, c.compartments, c.integrity, c.person FROM keyed_calls c
  WHERE NOT EXISTS (SELECT 1 FROM calls k WHERE k.origin = c.origin);
CREATE UNIQUE INDEX calls_by_origin ON calls (origin) WHERE origin IS NOT NULL;
CREATE INDEX calls_by_session ON calls (session);
CREATE INDEX calls_by_time ON calls (begun_at) WHERE approval IS NULL;
CREATE INDEX calls_due ON calls (id) WHERE is_due = 1;

DROP TABLE keyed_calls;
DROP TABLE approval_origins;
DROP INDEX approvals_by_origin;
DROP INDEX approvals_to_begin;
ALTER TABLE approvals DROP COLUMN origin;
ALTER TABLE approvals DROP COLUMN is_due;
ALTER TABLE approvals DROP COLUMN begun_at;
ALTER TABLE approvals DROP COLUMN begun_by;
ALTER TABLE approvals DROP COLUMN outcome;

INSERT INTO link_undo_rows (source, place, key)
  SELECT DISTINCT u.source, 'calls.origin', u.key FROM link_undo_rows u
  WHERE u.place IN ('approvals.origin', 'approval_origins.origin', 'keyed_calls.origin');
INSERT INTO link_undo_rows (source, place, key)
  SELECT u.source, 'calls.person', u.key FROM link_undo_rows u WHERE u.place = 'keyed_calls.person';
DELETE FROM link_undo_rows
  WHERE place IN ('approvals.origin', 'approval_origins.origin', 'keyed_calls.origin', 'keyed_calls.person');
