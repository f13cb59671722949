-- A silence of somebody's own: of what is theirs, for them alone. `owner_id` is whose it is, NULL is an admin's and for everybody; `session_id` is the
-- one session or run of theirs that it is about, NULL is any.
ALTER TABLE alert_silences ADD COLUMN owner_id TEXT COLLATE "C" REFERENCES users (id) ON DELETE CASCADE;
ALTER TABLE alert_silences ADD COLUMN session_id TEXT COLLATE "C" REFERENCES sessions (id) ON DELETE CASCADE;
CREATE INDEX idx_alert_silences_owner_id ON alert_silences (owner_id);
CREATE INDEX idx_alert_silences_session_id ON alert_silences (session_id);
