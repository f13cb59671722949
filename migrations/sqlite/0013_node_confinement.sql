-- What holds the jobs on each node to what they have asked for, as an agent there last said: `cgroup_v2`, `cgroup_v1` or `none`.
CREATE TABLE node_confinement (
    node        TEXT NOT NULL PRIMARY KEY,
    confined_by TEXT NOT NULL,
    at          BIGINT NOT NULL
);
