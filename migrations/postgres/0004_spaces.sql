-- Spaces, what was seen of them, and work on files that outlives a request.

-- `serial` is never used again: storage that counts by project numbers gets it.
CREATE TABLE spaces (
    serial        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id            TEXT COLLATE "C" NOT NULL,
    name          TEXT COLLATE "C" NOT NULL,
    kind          TEXT NOT NULL,
    title         TEXT NOT NULL,
    root_name     TEXT COLLATE "C" NOT NULL,
    owner_id      TEXT COLLATE "C" REFERENCES users (id),
    group_name    TEXT,
    writable      BOOLEAN NOT NULL,
    hint          TEXT NOT NULL,
    desired       TEXT NOT NULL,
    state         TEXT NOT NULL,
    undetermined  BOOLEAN NOT NULL,
    reason_code   TEXT,
    reason_text   TEXT,
    inode         BIGINT,
    fs_identity   TEXT,
    limit_bytes   BIGINT,
    limit_files   BIGINT,
    expires_at    BIGINT,
    warned        TEXT NOT NULL,
    retired_at    BIGINT,
    remove_after  BIGINT,
    created_at    BIGINT NOT NULL,
    version       BIGINT NOT NULL
);
CREATE UNIQUE INDEX idx_spaces_id ON spaces (id);
-- The name of a space that is gone is free again.
CREATE UNIQUE INDEX idx_spaces_name ON spaces (name) WHERE state <> 'gone';
CREATE INDEX idx_spaces_owner_id ON spaces (owner_id);

-- The last look at each space. `told_level` is what its owner was last told.
CREATE TABLE space_usage (
    space_id   TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES spaces (id) ON DELETE CASCADE,
    usage      TEXT NOT NULL,
    level      TEXT NOT NULL,
    told_level TEXT NOT NULL,
    seen_at    BIGINT NOT NULL
);

-- One sample an hour for some days, then one a day.
CREATE TABLE space_samples (
    space_id    TEXT COLLATE "C" NOT NULL REFERENCES spaces (id) ON DELETE CASCADE,
    at          BIGINT NOT NULL,
    used_bytes  BIGINT NOT NULL,
    used_files  BIGINT,
    limit_bytes BIGINT,
    PRIMARY KEY (space_id, at)
);
CREATE INDEX idx_space_samples_at ON space_samples (at);

-- Where uploads go; how far they have come is known beside their data. Names are base64url: they are bytes.
CREATE TABLE uploads (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id      TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    space_id     TEXT COLLATE "C" NOT NULL REFERENCES spaces (id) ON DELETE CASCADE,
    directory    TEXT NOT NULL,
    file_name    TEXT NOT NULL,
    length       BIGINT,
    checksum     TEXT,
    on_conflict  TEXT NOT NULL,
    state        TEXT NOT NULL,
    final_name   TEXT,
    created_at   BIGINT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL
);
CREATE INDEX idx_uploads_user_id_id ON uploads (user_id, id);
CREATE INDEX idx_uploads_space_id ON uploads (space_id);
CREATE INDEX idx_uploads_expires_at ON uploads (expires_at);

-- Work on files that outlives a request. A restart ends it as `interrupted`.
CREATE TABLE operations (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id    TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    space_id   TEXT COLLATE "C" NOT NULL REFERENCES spaces (id) ON DELETE CASCADE,
    kind       TEXT NOT NULL,
    state      TEXT NOT NULL,
    request    TEXT NOT NULL,
    progress   TEXT NOT NULL,
    problem    TEXT,
    created_at BIGINT NOT NULL,
    ended_at   BIGINT
);
CREATE INDEX idx_operations_user_id_id ON operations (user_id, id);
CREATE INDEX idx_operations_space_id ON operations (space_id);
CREATE INDEX idx_operations_ended_at ON operations (ended_at);

-- What was seen of a space that may lead to its end, how often and since when. Nothing is removed without it.
CREATE TABLE space_evidence (
    space_id TEXT COLLATE "C" NOT NULL REFERENCES spaces (id) ON DELETE CASCADE,
    what     TEXT COLLATE "C" NOT NULL,
    first_at BIGINT NOT NULL,
    last_at  BIGINT NOT NULL,
    times    BIGINT NOT NULL,
    PRIMARY KEY (space_id, what)
);

-- What a policy did, or would have done.
CREATE TABLE policy_runs (
    id       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    space_id TEXT COLLATE "C" NOT NULL REFERENCES spaces (id) ON DELETE CASCADE,
    step     TEXT,
    outcome  TEXT NOT NULL,
    why      TEXT NOT NULL,
    at       BIGINT NOT NULL
);
CREATE INDEX idx_policy_runs_space_id_id ON policy_runs (space_id, id);
CREATE INDEX idx_policy_runs_at ON policy_runs (at);
