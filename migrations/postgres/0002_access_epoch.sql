-- Counts how often all access of a user was voided: what was authorised before becomes no log-in and no token any more.
ALTER TABLE users ADD COLUMN access_epoch BIGINT NOT NULL DEFAULT 0;
