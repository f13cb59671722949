-- Time that was promised to people is counted by looks and not subtracted, so that a clock that jumps makes nobody wait less: seconds for which a
-- space was kept since it was taken away, and until when they were counted. What was taken away before begins to be counted now; so does what
-- was warned of, whose seconds are in `warned`.
ALTER TABLE spaces ADD COLUMN kept_s BIGINT NOT NULL DEFAULT 0;
ALTER TABLE spaces ADD COLUMN watched_at BIGINT;
