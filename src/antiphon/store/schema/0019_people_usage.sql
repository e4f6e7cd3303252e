-- What persons below owner spent in a UTC day, and all guests together (`guests`); `is_told` once a cap was told of.
CREATE TABLE people_usage (
  day TEXT NOT NULL,
  spender TEXT NOT NULL,
  tokens BIGINT NOT NULL DEFAULT 0,
  microusd BIGINT NOT NULL DEFAULT 0,
  is_told SMALLINT NOT NULL DEFAULT 0,
  PRIMARY KEY (day, spender)
) $without_rowid;

-- How many messages each sender below owner sent in a minute, and when its first one came (in ms).
CREATE TABLE message_paces (
  sender TEXT PRIMARY KEY,
  messages BIGINT NOT NULL,
  since BIGINT NOT NULL
) $without_rowid;

-- Both stood among the rows of agents before, under periods of their own.
INSERT INTO people_usage (day, spender, tokens, microusd, is_told)
  SELECT SUBSTR(day, 1, 10), agent_id, SUM(tokens), SUM(microusd), MAX(CASE WHEN day LIKE '% told' THEN 1 ELSE 0 END)
  FROM daily_usage WHERE day LIKE '% people' OR day LIKE '% told' GROUP BY SUBSTR(day, 1, 10), agent_id;
INSERT INTO message_paces (sender, messages, since)
  SELECT agent_id, tokens, microusd FROM daily_usage WHERE day = 'minute';
DELETE FROM daily_usage WHERE day LIKE '% people' OR day LIKE '% told' OR day = 'minute';
