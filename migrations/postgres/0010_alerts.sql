-- What somebody should know now, or should have known then. `subject` is what it is about, within its rule. `told` is what a webhook has taken of it:
-- 0 nothing, 1 that it is raised, 2 that it is over.
CREATE TABLE alerts (
    id              TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    rule            TEXT COLLATE "C" NOT NULL,
    severity        TEXT COLLATE "C" NOT NULL,
    subject         TEXT COLLATE "C" NOT NULL,
    session_id      TEXT COLLATE "C" REFERENCES sessions (id) ON DELETE CASCADE,
    owner_id        TEXT COLLATE "C" REFERENCES users (id) ON DELETE CASCADE,
    value           DOUBLE PRECISION NOT NULL,
    details         TEXT COLLATE "C" NOT NULL,
    started_at      BIGINT NOT NULL,
    ended_at        BIGINT,
    acknowledged_by TEXT COLLATE "C",
    acknowledged_at BIGINT,
    told            BIGINT NOT NULL DEFAULT 0,
    tell_at         BIGINT NOT NULL
);
CREATE UNIQUE INDEX idx_alerts_open ON alerts (rule, subject) WHERE ended_at IS NULL;
CREATE INDEX idx_alerts_owner ON alerts (owner_id, id);
CREATE INDEX idx_alerts_session ON alerts (session_id);
CREATE INDEX idx_alerts_ended ON alerts (ended_at);

-- For a time nobody is told of some alerts; NULL is any.
CREATE TABLE alert_silences (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    rule       TEXT COLLATE "C",
    subject    TEXT COLLATE "C",
    until      BIGINT NOT NULL,
    reason     TEXT COLLATE "C" NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL
);
