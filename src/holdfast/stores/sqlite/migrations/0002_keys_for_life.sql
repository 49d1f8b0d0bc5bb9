ALTER TABLE runs ADD COLUMN version    TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN attributes BLOB NOT NULL DEFAULT x'';
ALTER TABLE runs ADD COLUMN markers    BLOB NOT NULL DEFAULT x'';
ALTER TABLE runs ADD COLUMN waits      BLOB;

-- Runs that wait were let go in order: nobody has anything under way for them.
UPDATE runs SET waits = CAST('[]' AS BLOB) WHERE status = 'waiting';

-- How runs are found: each index ends in the order in which runs are listed, so that a page is a stretch of it, or can
-- be sorted without a look at the runs.
CREATE INDEX runs_by_creation ON runs (namespace, created_ms, id);
CREATE INDEX runs_by_workflow ON runs (namespace, workflow, created_ms, id);
CREATE INDEX runs_by_status   ON runs (namespace, status, created_ms, id);
CREATE INDEX runs_by_end      ON runs (namespace, finished_ms, created_ms, id) WHERE finished_ms IS NOT NULL;
CREATE INDEX runs_by_any_key  ON runs (namespace, key, created_ms, id) WHERE key IS NOT NULL;

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

-- The inbox remembers the id of a message for as long as its run: `body` is NULL once it has been read.
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

INSERT INTO inbox (arrival, run_id, id, body)
SELECT arrival, run_id, id, CAST(
    CASE
        WHEN output IS NOT NULL THEN json_object('what', 'outcome', 'id', id, 'step', step, 'from_run', from_run,
                                                 'status', status, 'output', json(CAST(output AS TEXT)))
        WHEN error IS NOT NULL  THEN json_object('what', 'outcome', 'id', id, 'step', step, 'from_run', from_run,
                                                 'status', status, 'error', json(CAST(error AS TEXT)))
        ELSE json_object('what', 'outcome', 'id', id, 'step', step, 'from_run', from_run, 'status', status)
    END AS BLOB)
FROM messages;

DROP TABLE messages;

-- Hooks that others may know: by a token, or by the shape of their payloads. One live owner per token: a row of a
-- run that has ended gives way.
CREATE TABLE hooks (
    opening   INTEGER PRIMARY KEY,
    run_id    TEXT NOT NULL,
    name      TEXT NOT NULL,
    namespace TEXT NOT NULL,
    token     TEXT,
    schema    BLOB
) STRICT;

CREATE UNIQUE INDEX hooks_by_token ON hooks (namespace, token) WHERE token IS NOT NULL;
CREATE INDEX hooks_by_run ON hooks (run_id, name);

ALTER TABLE leases ADD COLUMN namespace TEXT NOT NULL DEFAULT '';
ALTER TABLE leases ADD COLUMN workflows TEXT NOT NULL DEFAULT '[]';
