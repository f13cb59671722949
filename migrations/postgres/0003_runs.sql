-- Runs: a row of `sessions` with a program (JSON) in the app's place. One that repeats another is not submitted before that one is over; a
-- run is repeated once, and then what repeats it is. `exit_status` is its program's.
ALTER TABLE sessions ADD COLUMN program TEXT;
ALTER TABLE sessions ADD COLUMN requeue_of TEXT COLLATE "C" REFERENCES sessions (id);
ALTER TABLE sessions ADD COLUMN exit_status BIGINT;
CREATE UNIQUE INDEX idx_sessions_requeue_of ON sessions (requeue_of);
-- Lists show either sessions or runs, and of each as many as a page has.
CREATE INDEX idx_sessions_id_session ON sessions (id) WHERE program IS NULL;
CREATE INDEX idx_sessions_id_run ON sessions (id) WHERE program IS NOT NULL;
CREATE INDEX idx_sessions_owner_id_id_session ON sessions (owner_id, id) WHERE program IS NULL;
CREATE INDEX idx_sessions_owner_id_id_run ON sessions (owner_id, id) WHERE program IS NOT NULL;
