-- The hash of what an owner has released: by it a text goes where it may not, once. Contract: flow 11.
ALTER TABLE deliveries ADD COLUMN release TEXT;
