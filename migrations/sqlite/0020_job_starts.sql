-- Starts of sessions and runs that SLURM put back into the queue since: `restart_count` is that of the start, `ended_at` when it was over, as far as the
-- portal has seen it.
CREATE TABLE job_starts (
    session_id    TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    restart_count BIGINT NOT NULL,
    started_at    BIGINT NOT NULL,
    ended_at      BIGINT NOT NULL,
    PRIMARY KEY (session_id, restart_count)
);

-- What was held and used is a row for each start from here on, which says when it began.
CREATE TABLE job_usage_by_start (
    session_id      TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    restart_count   BIGINT NOT NULL,
    started_at      BIGINT NOT NULL,
    partition_name  TEXT NOT NULL,
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
    gpu_empty_s     BIGINT NOT NULL,
    PRIMARY KEY (session_id, restart_count)
);
-- What was measured last before SLURM put a session back into the queue is of the start before: its session has not started anew yet, or after that.
INSERT INTO job_usage_by_start (session_id, restart_count, started_at, partition_name, until, is_final, wall_s, cpu_held_s, cpu_used_s,
        memory_held_mib, memory_most_mib, gpu_held_s, gpu_known_s, gpu_busy_s, gpu_idle_s, gpu_empty_s)
    SELECT job_usage.session_id,
        CASE WHEN sessions.restart_count > 0 AND (sessions.started_at IS NULL OR job_usage.until < sessions.started_at)
            THEN sessions.restart_count - 1 ELSE sessions.restart_count END,
        job_usage.until - job_usage.wall_s * 1000000, job_usage.partition_name, job_usage.until, job_usage.is_final,
        job_usage.wall_s, job_usage.cpu_held_s, job_usage.cpu_used_s, job_usage.memory_held_mib, job_usage.memory_most_mib,
        job_usage.gpu_held_s, job_usage.gpu_known_s, job_usage.gpu_busy_s, job_usage.gpu_idle_s, job_usage.gpu_empty_s
    FROM job_usage JOIN sessions ON sessions.id = job_usage.session_id;
INSERT INTO job_starts (session_id, restart_count, started_at, ended_at)
    SELECT job_usage_by_start.session_id, job_usage_by_start.restart_count, job_usage_by_start.started_at, job_usage_by_start.until
    FROM job_usage_by_start JOIN sessions ON sessions.id = job_usage_by_start.session_id
    WHERE job_usage_by_start.restart_count < sessions.restart_count;
DROP TABLE job_usage;
ALTER TABLE job_usage_by_start RENAME TO job_usage;
CREATE INDEX idx_job_usage_until ON job_usage (until);
