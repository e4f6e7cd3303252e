-- Names of compartments. The bit in a mask is `bit`; neither it nor the name is ever used again.
CREATE TABLE compartments (
  bit INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  is_retired SMALLINT NOT NULL DEFAULT 0,
  created_at BIGINT NOT NULL
) $without_rowid;

-- Whose data it is: `person:<id>`, or `people` for several; NULL for nobody's. In a clearance: whose data it takes.
ALTER TABLE events ADD COLUMN person TEXT;
ALTER TABLE incarnations ADD COLUMN taint_person TEXT;
ALTER TABLE sessions ADD COLUMN base_person TEXT;
ALTER TABLE sessions ADD COLUMN clearance_person TEXT;
ALTER TABLE indexed_messages ADD COLUMN person TEXT;
