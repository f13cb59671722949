-- For how long the portal has watched that an upload is over, seconds; nothing where it was not. It is counted by looks, so that a clock that jumps
-- ends no upload, and kept, so that a portal that is restarted every night ends it all the same.
ALTER TABLE uploads ADD COLUMN over_s BIGINT;
