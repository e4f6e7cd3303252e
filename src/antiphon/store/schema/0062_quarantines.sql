-- The JSON Schema of what a child in quarantine returns; null for any other child.
ALTER TABLE spawns ADD COLUMN returns TEXT;

-- What such a child told its requester in values that count as trusted. The chain is the first run of those that
-- follow from one another; what all children told within it is counted together. Contract: flow 10.
CREATE TABLE quarantined_results (
  report TEXT NOT NULL PRIMARY KEY,
  requester BIGINT NOT NULL REFERENCES sessions(id),
  chain TEXT NOT NULL,
  millibits BIGINT NOT NULL,
  returned TEXT,
  created_at BIGINT NOT NULL
) $without_rowid;
CREATE INDEX quarantined_results_by_requester ON quarantined_results (requester);
CREATE INDEX quarantined_results_by_chain ON quarantined_results (chain);

-- Values that tools take and models do not see, for the runs of one chain.
CREATE TABLE quarantined_values (
  id TEXT NOT NULL PRIMARY KEY,
  session BIGINT NOT NULL REFERENCES sessions(id),
  incarnation TEXT NOT NULL,
  chain TEXT NOT NULL,
  value TEXT NOT NULL,
  level SMALLINT NOT NULL DEFAULT 0,
  compartments BIGINT NOT NULL DEFAULT 0,
  integrity SMALLINT NOT NULL DEFAULT 0,
  person TEXT,
  created_at BIGINT NOT NULL
) $without_rowid;
CREATE INDEX quarantined_values_by_session ON quarantined_values (session, chain);
