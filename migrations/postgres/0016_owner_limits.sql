-- What owners of spaces are limited to in a pool of storage that counts by person and group: set for the sake of their spaces, and by which of them.
CREATE TABLE owner_limits (
    quota_of   TEXT COLLATE "C" NOT NULL,
    number     BIGINT NOT NULL,
    pool       BIGINT NOT NULL,
    owner_id   TEXT COLLATE "C" REFERENCES users (id),
    group_name TEXT COLLATE "C",
    bytes      BIGINT NOT NULL,
    judged_by  TEXT NOT NULL,
    PRIMARY KEY (quota_of, number, pool)
);
CREATE INDEX idx_owner_limits_owner_id ON owner_limits (owner_id);

-- Nobody wrote down which of these an owner has: each is looked at once more, what was taken away when it comes back, and what is so already is not
-- set again.
UPDATE spaces SET limit_state = 'wanted', version = version + 1 WHERE limit_state = 'held' AND state <> 'gone';
