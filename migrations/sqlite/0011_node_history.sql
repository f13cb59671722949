-- What each node of the cluster was since when: a row for each change of its state or reason that the portal saw, until the next one.
-- `state` is `in_service`, `gone`, or the word for why it takes no jobs.
CREATE TABLE node_history (
    node    TEXT NOT NULL,
    at      BIGINT NOT NULL,
    state   TEXT NOT NULL,
    reason  TEXT,
    PRIMARY KEY (node, at)
);
CREATE INDEX idx_node_history_at ON node_history (at);
