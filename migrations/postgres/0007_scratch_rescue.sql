-- Whether a session that is over has something in its scratch that is to be brought back, or to be told of. Who comes for it is in `scratch_state`.
ALTER TABLE sessions ADD COLUMN scratch_left BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX idx_sessions_id_scratch_left ON sessions (id) WHERE scratch_left;
