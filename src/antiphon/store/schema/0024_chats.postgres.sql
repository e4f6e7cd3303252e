-- A delivery may belong to no session: the answer to a command, a code for a stranger.
ALTER TABLE deliveries ALTER COLUMN session DROP NOT NULL;
ALTER TABLE deliveries ALTER COLUMN incarnation DROP NOT NULL;
ALTER TABLE deliveries ADD COLUMN parts TEXT;
ALTER TABLE deliveries ADD COLUMN approval TEXT;
CREATE INDEX deliveries_by_approval ON deliveries (approval) WHERE approval IS NOT NULL;
CREATE INDEX deliveries_streaming ON deliveries (run_id) WHERE status = 'streaming';
CREATE INDEX deliveries_ended ON deliveries (channel, recipient, ended_at) WHERE status IN ('sent', 'dead');
