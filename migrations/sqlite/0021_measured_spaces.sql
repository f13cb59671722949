-- What one of a space's people had measured of all in it, the latest: what it uses where the storage counts nothing.
CREATE TABLE space_measured (
    space_id    TEXT NOT NULL PRIMARY KEY REFERENCES spaces (id) ON DELETE CASCADE,
    user_id     TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    used_bytes  BIGINT NOT NULL,
    used_files  BIGINT NOT NULL,
    approximate BOOLEAN NOT NULL,
    at          BIGINT NOT NULL
);
CREATE INDEX idx_space_measured_user_id ON space_measured (user_id);
