-- What the storage's servers did in the last day, and who asked for it: a row for each look at the servers of a role, `metadata` or `storage`.
-- Counts are not kept, so nothing is ever compared with what was counted before the portal was started.
CREATE TABLE storage_history (
    role    TEXT NOT NULL,
    at      BIGINT NOT NULL,
    servers TEXT,
    users   TEXT,
    PRIMARY KEY (role, at)
);
CREATE INDEX idx_storage_history_at ON storage_history (at);
