-- Events that did not flow to the taint of their session when they were stored: sessions that do not see them count on
-- without them. They stay when their events are pruned, so that later numbers do not change.
CREATE TABLE unnoticed_events (
  session BIGINT NOT NULL REFERENCES sessions(id),
  seq BIGINT NOT NULL,
  level SMALLINT NOT NULL,
  compartments BIGINT NOT NULL,
  person TEXT,
  PRIMARY KEY (session, seq)
) $without_rowid;
