-- The first schema: SQLite. Times are microseconds since 1970 UTC, ids 32 hexadecimal digits, lists JSON text.

-- Tells a file of ours from any other SQLite file: the letters "Eirn".
PRAGMA application_id = 1164538478;

CREATE TABLE users (
    id            TEXT NOT NULL PRIMARY KEY,
    username      TEXT NOT NULL,
    password_hash TEXT NOT NULL,
    role          TEXT NOT NULL,
    state         TEXT NOT NULL,
    uid           BIGINT,
    created_at    BIGINT NOT NULL
);
CREATE UNIQUE INDEX idx_users_username ON users (username);

-- A browser that is signed in to the portal.
CREATE TABLE logins (
    id           TEXT NOT NULL PRIMARY KEY,
    secret_hash  TEXT NOT NULL,
    user_id      TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at   BIGINT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    address      TEXT,
    user_agent   TEXT
);
CREATE UNIQUE INDEX idx_logins_secret_hash ON logins (secret_hash);
CREATE INDEX idx_logins_user_id ON logins (user_id);
CREATE INDEX idx_logins_expires_at ON logins (expires_at);

CREATE TABLE tokens (
    id           TEXT NOT NULL PRIMARY KEY,
    secret_hash  TEXT NOT NULL,
    user_id      TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name         TEXT NOT NULL,
    scopes       TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    last_used_at BIGINT
);
CREATE UNIQUE INDEX idx_tokens_secret_hash ON tokens (secret_hash);
CREATE INDEX idx_tokens_user_id_id ON tokens (user_id, id);
CREATE INDEX idx_tokens_expires_at ON tokens (expires_at);

-- A retired image keeps its row; its name is free again.
CREATE TABLE images (
    id          TEXT NOT NULL PRIMARY KEY,
    name        TEXT NOT NULL,
    description TEXT NOT NULL,
    path        TEXT NOT NULL,
    sha256      TEXT NOT NULL,
    size_bytes  BIGINT NOT NULL,
    apps        TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    retired     BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE UNIQUE INDEX idx_images_name ON images (name) WHERE retired = FALSE;

CREATE TABLE sessions (
    id               TEXT NOT NULL PRIMARY KEY,
    owner_id         TEXT NOT NULL REFERENCES users (id),
    owner_uid        BIGINT NOT NULL,
    name             TEXT NOT NULL,
    app              TEXT NOT NULL,
    image            TEXT NOT NULL,
    image_path       TEXT NOT NULL,
    project          TEXT,
    partition_name   TEXT,
    node_count       BIGINT NOT NULL,
    cpus             BIGINT NOT NULL,
    memory_mib       BIGINT NOT NULL,
    gpus             BIGINT NOT NULL,
    gpu_type         TEXT,
    walltime_min     BIGINT NOT NULL,
    desired          TEXT NOT NULL,
    state            TEXT NOT NULL,
    undetermined     BOOLEAN NOT NULL,
    reason_code      TEXT,
    reason_text      TEXT,
    marker           TEXT NOT NULL,
    submit_begun_at  BIGINT,
    job_cluster      TEXT,
    job_id           BIGINT,
    job_submitted_at BIGINT,
    restart_count    BIGINT NOT NULL,
    nodes            TEXT NOT NULL,
    start_estimate   BIGINT,
    created_at       BIGINT NOT NULL,
    started_at       BIGINT,
    ends_at          BIGINT,
    ended_at         BIGINT,
    version          BIGINT NOT NULL,
    idempotency_key  TEXT,
    body_hash        TEXT
);
CREATE UNIQUE INDEX idx_sessions_marker ON sessions (marker);
CREATE UNIQUE INDEX idx_sessions_owner_id_idempotency_key ON sessions (owner_id, idempotency_key);
CREATE INDEX idx_sessions_owner_id_id ON sessions (owner_id, id);
-- Sessions that are not over are few, the others many.
CREATE INDEX idx_sessions_id_live ON sessions (id) WHERE state NOT IN ('ended', 'failed');

-- What the agent of a session proves itself with: the job's secret until it has confirmed its tunnel key, then the key.
CREATE TABLE job_credentials (
    session_id       TEXT NOT NULL PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    restart_count    BIGINT NOT NULL,
    secret_hash      TEXT,
    tunnel_key_hash  TEXT,
    pending_key_hash TEXT
);

-- One-time codes that take a browser from the portal to a session's origin.
CREATE TABLE handovers (
    code_hash  TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    login_id   TEXT NOT NULL REFERENCES logins (id) ON DELETE CASCADE,
    expires_at BIGINT NOT NULL
);
CREATE INDEX idx_handovers_session_id ON handovers (session_id);
CREATE INDEX idx_handovers_user_id ON handovers (user_id);
CREATE INDEX idx_handovers_login_id ON handovers (login_id);
CREATE INDEX idx_handovers_expires_at ON handovers (expires_at);

-- A browser that is let in at a session's origin.
CREATE TABLE app_logins (
    secret_hash TEXT NOT NULL PRIMARY KEY,
    session_id  TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    user_id     TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    login_id    TEXT NOT NULL REFERENCES logins (id) ON DELETE CASCADE,
    expires_at  BIGINT NOT NULL
);
CREATE INDEX idx_app_logins_session_id ON app_logins (session_id);
CREATE INDEX idx_app_logins_user_id ON app_logins (user_id);
CREATE INDEX idx_app_logins_login_id ON app_logins (login_id);
CREATE INDEX idx_app_logins_expires_at ON app_logins (expires_at);

-- What open pages are told. Numbers are never used again, so a page can resume after the last it saw.
CREATE TABLE events (
    id         INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    session_id TEXT,
    owner_id   TEXT,
    kind       TEXT NOT NULL,
    data       TEXT NOT NULL,
    at         BIGINT NOT NULL
);
CREATE INDEX idx_events_at ON events (at);

CREATE TABLE audit_events (
    id         INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at         BIGINT NOT NULL,
    actor      TEXT NOT NULL,
    action     TEXT NOT NULL,
    target     TEXT NOT NULL,
    outcome    TEXT NOT NULL,
    details    TEXT NOT NULL,
    address    TEXT,
    request_id TEXT
);
CREATE INDEX idx_audit_events_actor_id ON audit_events (actor, id);
CREATE INDEX idx_audit_events_action_id ON audit_events (action, id);
CREATE TRIGGER trg_audit_events_no_update BEFORE UPDATE ON audit_events
BEGIN
    SELECT RAISE(ABORT, 'audit events are append-only');
END;
CREATE TRIGGER trg_audit_events_no_delete BEFORE DELETE ON audit_events
BEGIN
    SELECT RAISE(ABORT, 'audit events are append-only');
END;

-- Jobs that carry our mark and have no session here, seen after an older database was restored.
CREATE TABLE adopted_jobs (
    marker  TEXT NOT NULL,
    cluster TEXT NOT NULL,
    job_id  BIGINT NOT NULL,
    uid     BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (marker, cluster, job_id)
);
