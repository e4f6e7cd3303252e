-- How often the newest slot of a task was tried again. Contract: tasks 2.
ALTER TABLE tasks ADD COLUMN tries BIGINT NOT NULL DEFAULT 0;
