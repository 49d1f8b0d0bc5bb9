-- What leaves with a commit, and what was done by it. A number never comes twice, so a page never misses one.
CREATE TABLE outs (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT    NOT NULL,
    id        TEXT    NOT NULL,
    topic     TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    payload   BLOB    NOT NULL,
    at_ms     INTEGER NOT NULL
) STRICT;

CREATE INDEX outs_in_order ON outs (namespace, number);

CREATE TABLE audits (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT    NOT NULL,
    id        TEXT    NOT NULL,
    actor     TEXT    NOT NULL,
    action    TEXT    NOT NULL,
    subject   TEXT    NOT NULL,
    at_ms     INTEGER NOT NULL,
    detail    BLOB    NOT NULL
) STRICT;

CREATE INDEX audits_in_order ON audits (namespace, number);
