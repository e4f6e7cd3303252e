-- What an agent used in a day is added up in parts, so that steps of different sessions seldom wait for each other.
CREATE TABLE daily_usage_in_parts (
  day TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  part SMALLINT NOT NULL,
  tokens BIGINT NOT NULL,
  microusd BIGINT NOT NULL,
  PRIMARY KEY (day, agent_id, part)
) $without_rowid;
INSERT INTO daily_usage_in_parts (day, agent_id, part, tokens, microusd)
  SELECT day, agent_id, 0, tokens, microusd FROM daily_usage;
DROP TABLE daily_usage;
ALTER TABLE daily_usage_in_parts RENAME TO daily_usage;
