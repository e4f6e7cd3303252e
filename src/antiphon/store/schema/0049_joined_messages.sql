-- A message that waits may become one with others: how many it is made of, and until when others may join it. How many
-- files are fetched for it: one without any takes nobody's place.
ALTER TABLE held_messages ADD COLUMN parts BIGINT NOT NULL DEFAULT 1;
ALTER TABLE held_messages ADD COLUMN open_until BIGINT NOT NULL DEFAULT 0;
ALTER TABLE held_messages ADD COLUMN files BIGINT NOT NULL DEFAULT 1;
