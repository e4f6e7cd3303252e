-- Who was met in groups: all who wrote or joined there and have not left. Noted once the settings name members of any.
CREATE TABLE met_in_groups (
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  group_id TEXT NOT NULL,
  platform_id TEXT NOT NULL,
  PRIMARY KEY (channel, account, group_id, platform_id)
) $without_rowid;
