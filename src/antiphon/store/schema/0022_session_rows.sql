-- What a message does while the session is busy, unless the message itself says; NULL for what its channel says.
ALTER TABLE sessions ADD COLUMN queue_mode TEXT;
