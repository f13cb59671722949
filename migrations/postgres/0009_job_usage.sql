-- What became of an allocation: what a session or run held, and what its programs used of it. Measured anew while it lasts; NULL where nobody told.
-- `partition_name` is where it ran, also where nobody chose.
CREATE TABLE job_usage (
    session_id      TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    partition_name  TEXT COLLATE "C" NOT NULL,
    until           BIGINT NOT NULL,
    is_final        BOOLEAN NOT NULL,
    wall_s          BIGINT NOT NULL,
    cpu_held_s      BIGINT,
    cpu_used_s      BIGINT,
    memory_held_mib BIGINT,
    memory_most_mib BIGINT,
    gpu_held_s      BIGINT NOT NULL,
    gpu_known_s     BIGINT NOT NULL,
    gpu_busy_s      BIGINT NOT NULL,
    gpu_idle_s      BIGINT NOT NULL,
    gpu_empty_s     BIGINT NOT NULL
);
CREATE INDEX idx_job_usage_until ON job_usage (until);
