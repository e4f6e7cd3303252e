-- The open requests, newest last, however many were decided before.
CREATE INDEX approvals_open ON approvals (id) WHERE state = 'pending';
