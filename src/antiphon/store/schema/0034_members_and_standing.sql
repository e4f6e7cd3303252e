-- Who was met in groups: all who wrote or joined there and have not left. Noted once the settings name members of any.
CREATE TABLE met_in_groups (
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  group_id TEXT NOT NULL,
  platform_id TEXT NOT NULL,
  PRIMARY KEY (channel, account, group_id, platform_id)
) $without_rowid;

-- What the calls of a standing approval were made of. Nobody knows it of those whose request is gone.
ALTER TABLE standing_approvals ADD COLUMN level SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE standing_approvals ADD COLUMN compartments BIGINT NOT NULL DEFAULT 0;
ALTER TABLE standing_approvals ADD COLUMN integrity SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE standing_approvals ADD COLUMN person TEXT;
UPDATE standing_approvals SET
  level = COALESCE((SELECT i.taint_level FROM approvals a JOIN incarnations i ON i.id = a.incarnation
    WHERE a.id = standing_approvals.approval), 3),
  compartments = COALESCE((SELECT i.taint_compartments FROM approvals a JOIN incarnations i ON i.id = a.incarnation
    WHERE a.id = standing_approvals.approval), (SELECT CAST(SUM(CAST(1 AS BIGINT) << c.bit) AS BIGINT) FROM compartments c), 0),
  person = CASE WHEN EXISTS (SELECT 1 FROM approvals a WHERE a.id = standing_approvals.approval)
    THEN (SELECT i.taint_person FROM approvals a JOIN incarnations i ON i.id = a.incarnation
      WHERE a.id = standing_approvals.approval) ELSE 'people' END;
