-- The files that a text brings along, as JSON: their names, bytes and hashes. Contract: channels 1.
ALTER TABLE deliveries ADD COLUMN files TEXT NOT NULL DEFAULT '[]';
-- What is in them, until they are sent.
CREATE TABLE delivery_files (
  delivery TEXT NOT NULL,
  number BIGINT NOT NULL,
  data $blob NOT NULL,
  PRIMARY KEY (delivery, number)
) $without_rowid;
