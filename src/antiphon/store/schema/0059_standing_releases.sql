-- What a standing approval lets go where it may not, as JSON; null for one that allows calls alone. Contract: flow 11.
ALTER TABLE standing_approvals ADD COLUMN release TEXT;
