-- The withheld result that a request would bring to its session, and what that was made of. Contract: flow 6, 11.
ALTER TABLE approvals ADD COLUMN result TEXT;
ALTER TABLE approvals ADD COLUMN shown_level SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE approvals ADD COLUMN shown_compartments BIGINT NOT NULL DEFAULT 0;
ALTER TABLE approvals ADD COLUMN shown_integrity SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE approvals ADD COLUMN shown_person TEXT;
CREATE INDEX approvals_of_result ON approvals (result) WHERE result IS NOT NULL;
