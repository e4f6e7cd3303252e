-- How far each log is in the index of words: off the row that appends write to.
CREATE TABLE indexed_logs (
  session BIGINT PRIMARY KEY REFERENCES sessions(id),
  first_seq BIGINT NOT NULL,
  indexed_seq BIGINT NOT NULL
) $without_rowid;

-- Messages in the index. An id begins with the message's time, so that the newest is the highest.
CREATE TABLE indexed_messages (
  id $serial,
  session BIGINT NOT NULL,
  seq BIGINT NOT NULL,
  incarnation TEXT NOT NULL,
  level SMALLINT NOT NULL,
  compartments BIGINT NOT NULL,
  UNIQUE (session, seq)
);

-- One row: its lock lets one process at a time give ids.
CREATE TABLE index_turns (
  id INTEGER PRIMARY KEY,
  turns BIGINT NOT NULL
);
INSERT INTO index_turns (id, turns) VALUES (1, 0);
