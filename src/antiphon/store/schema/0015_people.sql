-- The persons behind principals. A principal names its person; the role is read where it is decided.
CREATE TABLE people (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  role TEXT NOT NULL,
  -- Agents with which a user may open sessions, besides those that the settings name; separated by blanks.
  agents TEXT NOT NULL DEFAULT '',
  is_suspended SMALLINT NOT NULL DEFAULT 0,
  merged_into TEXT REFERENCES people(id),
  created_at BIGINT NOT NULL,
  -- Grows with every change of what the person may: open requests with an older one are decided anew.
  revision BIGINT NOT NULL DEFAULT 0
) $without_rowid;
CREATE INDEX people_by_role ON people (role) WHERE role <> 'guest';
CREATE INDEX people_merged ON people (merged_into) WHERE merged_into IS NOT NULL;
-- The accounts of persons on channels, by immutable ids of the platforms.
CREATE TABLE identities (
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  platform_id TEXT NOT NULL,
  person TEXT NOT NULL REFERENCES people(id),
  created_at BIGINT NOT NULL,
  PRIMARY KEY (channel, account, platform_id)
) $without_rowid;
CREATE INDEX identities_by_person ON identities (person);
-- Whether places and storage are reserved for the run: whether an owner asked when it was queued.
ALTER TABLE runs ADD COLUMN is_favoured SMALLINT NOT NULL DEFAULT 0;
DROP INDEX runs_queued_by_guests;
UPDATE runs SET is_favoured = 1 WHERE principal = 'owner:owner' AND (ended_at IS NULL OR is_parked = 1);
CREATE INDEX runs_queued_by_guests ON runs (principal) WHERE status = 'queued' AND is_favoured = 0;
