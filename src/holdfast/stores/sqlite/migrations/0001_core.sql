-- A run's row holds everything about it but its payloads and its journal. It is rewritten by every settling commit,
-- so nothing large may live here while the run is under way; output and error are written once, at the end.
CREATE TABLE runs (
    rowid        INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL UNIQUE,
    namespace    TEXT    NOT NULL,
    workflow     TEXT    NOT NULL,
    key          TEXT,
    queue        TEXT    NOT NULL,
    priority     INTEGER NOT NULL,
    digest       TEXT    NOT NULL,
    request_id   TEXT    NOT NULL,
    retention_ms INTEGER NOT NULL,
    created_ms   INTEGER NOT NULL,
    status       TEXT    NOT NULL,
    epoch        INTEGER NOT NULL,
    nonce        TEXT    NOT NULL,
    owner        TEXT,
    wake_ms      INTEGER,
    length       INTEGER NOT NULL,
    unread       INTEGER NOT NULL DEFAULT 0,
    holds_key    INTEGER NOT NULL,
    started_ms   INTEGER,
    finished_ms  INTEGER,
    expires_ms   INTEGER,
    output       BLOB,
    error        BLOB,
    change_id    TEXT    NOT NULL
) STRICT;

-- The key claim is the run itself: one live holder per (namespace, workflow, key), enforced here and nowhere else.
CREATE UNIQUE INDEX runs_by_key ON runs (namespace, workflow, key) WHERE holds_key = 1;
CREATE INDEX runs_ready   ON runs (namespace, workflow, priority DESC, wake_ms) WHERE wake_ms IS NOT NULL;
CREATE INDEX runs_held    ON runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX runs_unread  ON runs (owner) WHERE owner IS NOT NULL AND unread > 0;
CREATE INDEX runs_expired ON runs (expires_ms) WHERE expires_ms IS NOT NULL;

-- One row per commit: `entries` is a JSON array, the first of them at `position`.
CREATE TABLE journal (
    run_id   TEXT    NOT NULL,
    position INTEGER NOT NULL,
    entries  BLOB    NOT NULL,
    PRIMARY KEY (run_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE blobs (
    run_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (run_id, digest)
) STRICT;

CREATE TABLE messages (
    arrival  INTEGER PRIMARY KEY,
    run_id   TEXT NOT NULL,
    id       TEXT NOT NULL,
    step     TEXT NOT NULL,
    from_run TEXT NOT NULL,
    status   TEXT NOT NULL,
    output   BLOB,
    error    BLOB,
    UNIQUE (run_id, id)
) STRICT;

CREATE TABLE watchers (
    run_id  TEXT NOT NULL,
    watcher TEXT NOT NULL,
    step    TEXT NOT NULL,
    PRIMARY KEY (run_id, watcher, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE beats (
    run_id  TEXT NOT NULL,
    step    TEXT NOT NULL,
    details BLOB NOT NULL,
    PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    owner    TEXT PRIMARY KEY,
    until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The store's clock: steady milliseconds of the boot named here, plus `offset_ms`.
CREATE TABLE clock (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    boot_id   TEXT    NOT NULL,
    offset_ms INTEGER NOT NULL
) STRICT;
