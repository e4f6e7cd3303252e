-- Where the results of a task go: chat, me, place or log, and the session of a chat that is not the one in which it was
-- made. Null for tasks of before, whose results go to their place if they have one. Contract: tasks 1.
ALTER TABLE tasks ADD COLUMN send_to TEXT;
ALTER TABLE tasks ADD COLUMN chat BIGINT;
