-- Old files in spaces of groups: what is listed, told and removed of each member apart. An exemption and days of its own are the space's, in
-- `old_files`; so is what belongs to nobody who is a member, which is only counted.
CREATE TABLE old_files_of_members (
    space_id TEXT COLLATE "C" NOT NULL REFERENCES spaces (id) ON DELETE CASCADE,
    user_id  TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    seen_at  BIGINT,
    steady_s BIGINT NOT NULL,
    doubt    TEXT,
    list     TEXT,
    look     TEXT,
    removed  TEXT,
    version  BIGINT NOT NULL,
    PRIMARY KEY (space_id, user_id)
);
CREATE INDEX idx_old_files_of_members_user_id ON old_files_of_members (user_id);

ALTER TABLE old_files ADD COLUMN strangers TEXT;
