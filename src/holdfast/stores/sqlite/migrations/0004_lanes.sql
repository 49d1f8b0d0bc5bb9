-- Runs that go one after the other. A place is there as long as its run has not ended: how many are active is counted,
-- and stands nowhere.
ALTER TABLE runs ADD COLUMN lane TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN aside INTEGER NOT NULL DEFAULT 0;

CREATE INDEX runs_in_lanes ON runs (lane) WHERE lane > '' AND finished_ms IS NULL;

CREATE TABLE lanes (
    namespace   TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    width       INTEGER NOT NULL,
    declared    INTEGER NOT NULL,
    paused      INTEGER NOT NULL,
    next_number INTEGER NOT NULL,
    empty_since_ms INTEGER,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX lanes_empty ON lanes (empty_since_ms) 
    WHERE empty_since_ms IS NOT NULL AND paused = 0 AND width = declared;

CREATE TABLE places (
    run_id    TEXT    PRIMARY KEY,
    namespace TEXT    NOT NULL,
    lane      TEXT    NOT NULL,
    number    INTEGER NOT NULL,
    priority  INTEGER NOT NULL,
    wake_ms   INTEGER NOT NULL,
    active    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX places_active ON places (active, run_id) WHERE active = 1;
CREATE INDEX places_in_order ON places (namespace, lane, active, priority DESC, number);
