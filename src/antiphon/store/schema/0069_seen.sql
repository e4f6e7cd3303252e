-- When the person of an account last wrote there, to the hour, in milliseconds; null before the first message since.
-- Contract: access 3.
ALTER TABLE identities ADD COLUMN seen_at BIGINT;
