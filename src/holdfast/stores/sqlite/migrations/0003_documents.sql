-- Small records beside the runs. Bodies may be long, so the rows lie by rowid, and what finds them is beside them.
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

-- Where a worker runs. One of an earlier version may go on beside us: it says nothing about itself.
ALTER TABLE leases ADD COLUMN host        TEXT    NOT NULL DEFAULT '';
ALTER TABLE leases ADD COLUMN pid         INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN concurrency INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN joined_ms   INTEGER NOT NULL DEFAULT 0;
