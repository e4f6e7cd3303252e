-- The refused text that a request would let go; null for one about calls. Contract: flow 6, 11.
ALTER TABLE approvals ADD COLUMN delivery TEXT;
CREATE INDEX approvals_of_delivery ON approvals (delivery) WHERE delivery IS NOT NULL;
