CREATE TABLE attributes (
    run_id     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    namespace  TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    value      ANY     NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX attributes_by_value ON attributes (namespace, name, kind, value, created_ms, run_id);

CREATE TABLE beats (
    run_id  TEXT NOT NULL,
    step    TEXT NOT NULL,
    details BLOB NOT NULL,
    PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE blobs (
    run_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (run_id, digest)
) STRICT;

CREATE TABLE clock (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    boot_id   TEXT    NOT NULL,
    offset_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE documents (
    rowid      INTEGER PRIMARY KEY,
    namespace  TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    body       BLOB    NOT NULL,
    due_ms     INTEGER,
    expires_ms INTEGER,
    UNIQUE (namespace, kind, id)
) STRICT;

CREATE INDEX documents_due     ON documents (namespace, kind, due_ms, id) WHERE due_ms IS NOT NULL;

CREATE INDEX documents_expired ON documents (expires_ms) WHERE expires_ms IS NOT NULL;

CREATE TABLE hooks (
    opening   INTEGER PRIMARY KEY,
    run_id    TEXT NOT NULL,
    name      TEXT NOT NULL,
    namespace TEXT NOT NULL,
    token     TEXT,
    schema    BLOB
) STRICT;

CREATE INDEX hooks_by_run ON hooks (run_id, name);

CREATE UNIQUE INDEX hooks_by_token ON hooks (namespace, token) WHERE token IS NOT NULL;

CREATE TABLE inbox (
    arrival INTEGER PRIMARY KEY,
    run_id  TEXT NOT NULL,
    id      TEXT NOT NULL,
    scope   TEXT,
    body    BLOB,
    UNIQUE (run_id, id)
) STRICT;

CREATE UNIQUE INDEX inbox_scopes ON inbox (scope, id) WHERE scope IS NOT NULL;

CREATE INDEX inbox_unread ON inbox (run_id, arrival) WHERE body IS NOT NULL;

CREATE TABLE journal (
    run_id   TEXT    NOT NULL,
    position INTEGER NOT NULL,
    entries  BLOB    NOT NULL,
    PRIMARY KEY (run_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    owner    TEXT PRIMARY KEY,
    until_ms INTEGER NOT NULL
, namespace TEXT NOT NULL DEFAULT '', workflows TEXT NOT NULL DEFAULT '[]', host        TEXT    NOT NULL DEFAULT '', pid         INTEGER NOT NULL DEFAULT 0, concurrency INTEGER NOT NULL DEFAULT 0, joined_ms   INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;

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
, version    TEXT NOT NULL DEFAULT '', attributes BLOB NOT NULL DEFAULT x'', markers    BLOB NOT NULL DEFAULT x'', waits      BLOB) STRICT;

CREATE INDEX runs_by_any_key  ON runs (namespace, key, created_ms, id) WHERE key IS NOT NULL;

CREATE INDEX runs_by_creation ON runs (namespace, created_ms, id);

CREATE INDEX runs_by_end      ON runs (namespace, finished_ms, created_ms, id) WHERE finished_ms IS NOT NULL;

CREATE UNIQUE INDEX runs_by_key ON runs (namespace, workflow, key) WHERE holds_key = 1;

CREATE INDEX runs_by_status   ON runs (namespace, status, created_ms, id);

CREATE INDEX runs_by_workflow ON runs (namespace, workflow, created_ms, id);

CREATE INDEX runs_expired ON runs (expires_ms) WHERE expires_ms IS NOT NULL;

CREATE INDEX runs_held    ON runs (owner) WHERE owner IS NOT NULL;

CREATE INDEX runs_ready   ON runs (namespace, workflow, priority DESC, wake_ms) WHERE wake_ms IS NOT NULL;

CREATE INDEX runs_unread  ON runs (owner) WHERE owner IS NOT NULL AND unread > 0;

CREATE TABLE watchers (
    run_id  TEXT NOT NULL,
    watcher TEXT NOT NULL,
    step    TEXT NOT NULL,
    PRIMARY KEY (run_id, watcher, step)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 3;
