-- Calls from outside a run with an `Idempotency-Key` that needed no request, each begun once by the process in `begun_by`.
CREATE TABLE keyed_calls (
  id TEXT PRIMARY KEY,
  origin TEXT NOT NULL,
  session BIGINT NOT NULL REFERENCES sessions(id),
  sha256 TEXT NOT NULL,
  begun_at BIGINT NOT NULL,
  begun_by TEXT NOT NULL,
  outcome TEXT,
  level SMALLINT NOT NULL DEFAULT 0,
  compartments BIGINT NOT NULL DEFAULT 0,
  integrity SMALLINT NOT NULL DEFAULT 0,
  person TEXT
) $without_rowid;
CREATE UNIQUE INDEX keyed_calls_by_origin ON keyed_calls (origin);
CREATE INDEX keyed_calls_by_session ON keyed_calls (session);
CREATE INDEX keyed_calls_by_time ON keyed_calls (begun_at);
