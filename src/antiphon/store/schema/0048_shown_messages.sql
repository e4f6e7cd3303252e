-- A message that answers one of the bot's names it by the platform's id: of a text's first part, or of a later one.
CREATE INDEX deliveries_shown ON deliveries (channel, recipient, platform_id) WHERE platform_id IS NOT NULL;
-- The thread that a text was for, if it stands in the chat itself because that thread is closed or was deleted.
ALTER TABLE deliveries ADD COLUMN moved_from TEXT;
