-- How many sessions and runs of a person are not over is counted with each start.
CREATE INDEX idx_sessions_owner_id_live ON sessions (owner_id) WHERE state NOT IN ('ended', 'failed');
