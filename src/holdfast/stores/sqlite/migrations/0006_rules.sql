-- How much has been taken of each rate: when the next would be due. A rate that has come due need not be here.
CREATE TABLE rates (
    namespace TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    due_us    INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX rates_due ON rates (due_us);

-- Runs that take turns: the tag and the share of one that has not begun, how far each line has come, and the next tag
-- of each share. Runs of other workflows have no tag, and are not in the index.
ALTER TABLE runs ADD COLUMN tag   INTEGER;
ALTER TABLE runs ADD COLUMN share TEXT;

CREATE INDEX runs_by_turn ON runs (namespace, workflow, priority, tag, wake_ms)
WHERE tag IS NOT NULL AND wake_ms IS NOT NULL;

CREATE TABLE lines (
    namespace TEXT    NOT NULL,
    workflow  TEXT    NOT NULL,
    priority  INTEGER NOT NULL,
    reached   INTEGER NOT NULL,
    PRIMARY KEY (namespace, workflow, priority)
) STRICT, WITHOUT ROWID;

CREATE TABLE shares (
    namespace TEXT    NOT NULL,
    workflow  TEXT    NOT NULL,
    priority  INTEGER NOT NULL,
    share     TEXT    NOT NULL,
    next_tag  INTEGER NOT NULL,
    PRIMARY KEY (namespace, workflow, priority, share)
) STRICT, WITHOUT ROWID;
