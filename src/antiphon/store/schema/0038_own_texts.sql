-- Antiphon's own texts are drawn as they are, with what is code in them by its place; NULL for the Markdown of agents.
ALTER TABLE deliveries ADD COLUMN spans TEXT;
UPDATE deliveries SET spans = '[]' WHERE session IS NULL;
CREATE INDEX approvals_of_principal ON approvals (principal) WHERE state = 'pending';
