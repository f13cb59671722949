-- Old files in a space: what an admin says of them there, how the clock was watched, and the last list, look and removal. The list itself lies
-- in a file of the portal's; here are its sums.
CREATE TABLE old_files (
    space_id TEXT NOT NULL PRIMARY KEY REFERENCES spaces (id) ON DELETE CASCADE,
    exempt   BOOLEAN NOT NULL,
    days     BIGINT,
    seen_at  BIGINT,
    steady_s BIGINT NOT NULL,
    doubt    TEXT,
    list     TEXT,
    look     TEXT,
    removed  TEXT,
    version  BIGINT NOT NULL
);
