-- Sessions whose log is being copied in pages: rows that look deleted until the last unit gives them their key's life.
-- What a process leaves behind is removed with its row.
CREATE TABLE copies_under_way (
  session BIGINT PRIMARY KEY REFERENCES sessions(id),
  process TEXT NOT NULL,
  -- The last event that is stored.
  last_seq BIGINT NOT NULL
) $without_rowid;
