-- name: admit
INSERT INTO runs (id, namespace, workflow, key, queue, priority, digest, request_id, retention_ms, created_ms, status,
                  epoch, nonce, owner, wake_ms, length, holds_key, started_ms, change_id, version, attributes,
                  markers)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: release_key
UPDATE runs SET holds_key = 0, epoch = ? WHERE id = ?

-- name: show
UPDATE runs SET attributes = ?, markers = ? WHERE id = ?

-- name: forget_attributes
DELETE FROM attributes WHERE run_id = ?

-- name: index_attribute
INSERT INTO attributes (run_id, name, namespace, kind, value, created_ms) VALUES (?, ?, ?, ?, ?, ?)

-- name: progress
UPDATE runs SET length = ?, change_id = ?
WHERE id = ? AND epoch = ? AND nonce = ? AND length = ? AND change_id <> ?

-- name: progress_and_read
UPDATE runs SET unread = unread - ?, length = ?, change_id = ?
WHERE id = ? AND epoch = ? AND nonce = ? AND length = ? AND change_id <> ?

-- name: settle
UPDATE runs SET status = ?1, epoch = ?2, nonce = ?3, owner = ?4, length = ?6, unread = unread - ?7, started_ms = ?8,
    -- a message that came while the run was being let go must not wait for a timer
    wake_ms = CASE WHEN ?1 = 'waiting' AND unread > ?7 THEN ?17 ELSE ?5 END,
    finished_ms = ?9, expires_ms = ?10, output = ?11, error = ?12, change_id = ?13, waits = ?19
WHERE id = ?14 AND epoch = ?15 AND nonce = ?16 AND length = ?18 AND change_id <> ?13
    -- a run ends over an empty inbox
    AND (?9 IS NULL OR finished_ms IS NOT NULL OR unread = ?7)

-- name: append
INSERT INTO journal (run_id, position, entries) VALUES (?, ?, ?)

-- name: keep_blob
INSERT OR IGNORE INTO blobs (run_id, digest, data) VALUES (?, ?, ?)

-- name: copy_blob
INSERT OR IGNORE INTO blobs (run_id, digest, data) SELECT ?, digest, data FROM blobs WHERE run_id = ? AND digest = ?

-- name: keep_beat
INSERT OR REPLACE INTO beats (run_id, step, details) VALUES (?, ?, ?)

-- name: read_message
UPDATE inbox SET body = NULL WHERE run_id = ? AND id = ?

-- name: unread_among
SELECT count(*) FROM inbox WHERE run_id = ? AND body IS NOT NULL AND id IN (SELECT value FROM json_each(?))

-- name: move_messages
UPDATE inbox SET run_id = ? WHERE run_id = ? AND id IN (SELECT value FROM json_each(?))

-- name: count_unread
UPDATE runs SET unread = unread + ? WHERE id = ?

-- name: hand_on
UPDATE inbox SET run_id = ?, body = ? WHERE run_id = ? AND id = ? AND scope = ?

-- name: forget_journal
DELETE FROM journal WHERE run_id = ?

-- name: forget_blobs
DELETE FROM blobs WHERE run_id = ?

-- name: add_watcher
INSERT OR IGNORE INTO watchers (run_id, watcher, step) VALUES (?, ?, ?)

-- name: watchers
SELECT watcher, step FROM watchers WHERE run_id = ?

-- name: add_message
INSERT OR IGNORE INTO inbox (run_id, id, scope, body)
SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM runs WHERE id = ?1 AND finished_ms IS NULL)

-- name: receiver_in_scope
SELECT run_id FROM inbox INDEXED BY inbox_scopes WHERE scope = ? AND id IN (?, ?) AND scope IS NOT NULL

-- name: received
SELECT run_id FROM inbox WHERE run_id = ? AND id = ?

-- name: received_in_scope
SELECT 1 FROM inbox WHERE run_id = ? AND id = ? AND scope = ?

-- name: token_holder
SELECT run_id FROM hooks INDEXED BY hooks_by_token WHERE namespace = ? AND token = ? AND token IS NOT NULL

-- name: hook_of_token
SELECT name, token, schema, run_id FROM hooks INDEXED BY hooks_by_token
WHERE namespace = ? AND token = ? AND token IS NOT NULL

-- name: hook
SELECT name, token, schema FROM hooks WHERE run_id = ? AND name = ? ORDER BY opening DESC LIMIT 1

-- name: open_hook
INSERT INTO hooks (run_id, name, namespace, token, schema) VALUES (?, ?, ?, ?, ?)

-- name: close_hook
DELETE FROM hooks WHERE run_id = ? AND name = ? AND token IS ?

-- name: free_token
DELETE FROM hooks WHERE namespace = ? AND token = ? AND token IS NOT NULL

-- name: served
SELECT workflows FROM leases WHERE namespace = ? AND until_ms > ?

-- name: members
SELECT owner, joined_ms, until_ms, namespace, workflows, host, pid, concurrency,
    (SELECT count(*) FROM runs INDEXED BY runs_held WHERE runs.owner = leases.owner AND runs.owner IS NOT NULL)
FROM leases WHERE namespace = ? AND until_ms > ? ORDER BY joined_ms, owner

-- name: count_status
SELECT count(*) FROM (SELECT 1 FROM runs INDEXED BY runs_by_status WHERE namespace = ? AND status = ? LIMIT ?)

-- name: next_workflow
SELECT min(workflow) FROM runs INDEXED BY runs_ready WHERE namespace = ? AND workflow > ? AND wake_ms IS NOT NULL

-- name: count_ready
SELECT count(*) FROM (SELECT 1 FROM runs INDEXED BY runs_ready
WHERE namespace = ? AND workflow = ? AND priority = ? AND wake_ms <= ? LIMIT ?)

-- name: first_waking
SELECT wake_ms, queue FROM runs INDEXED BY runs_ready
WHERE namespace = ? AND workflow = ? AND priority = ? AND wake_ms IS NOT NULL ORDER BY wake_ms LIMIT 1

-- name: tell
UPDATE runs SET unread = unread + 1, wake_ms = CASE WHEN status = 'waiting' THEN ? ELSE wake_ms END WHERE id = ?

-- name: at_fence
SELECT 1 FROM runs WHERE id = ? AND epoch = ? AND nonce = ?

-- name: next_priority
SELECT priority FROM runs INDEXED BY runs_ready
WHERE namespace = ? AND workflow = ? AND priority < ? AND wake_ms IS NOT NULL ORDER BY priority DESC LIMIT 1

-- name: ready
SELECT id, wake_ms FROM runs INDEXED BY runs_ready
WHERE namespace = ? AND workflow = ? AND priority = ? AND wake_ms <= ? ORDER BY wake_ms LIMIT ?

-- name: first_wake
SELECT min(wake_ms) FROM runs INDEXED BY runs_ready
WHERE namespace = ? AND workflow = ? AND priority = ? AND wake_ms IS NOT NULL

-- name: claim
UPDATE runs SET status = 'running', owner = ?, nonce = ?, epoch = epoch + 1, wake_ms = NULL,
    started_ms = coalesce(started_ms, ?)
WHERE id = ?

-- name: join
INSERT INTO leases (owner, until_ms, joined_ms, namespace, workflows, host, pid, concurrency)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: renew
UPDATE leases SET until_ms = ? WHERE owner = ? AND until_ms > ?

-- name: leave
DELETE FROM leases WHERE owner = ?

-- name: expired
SELECT owner FROM leases WHERE until_ms <= ?

-- name: next_owner
SELECT min(owner) FROM runs INDEXED BY runs_held WHERE owner > ? AND owner IS NOT NULL

-- name: has_lease
SELECT 1 FROM leases WHERE owner = ?

-- name: free
UPDATE runs SET status = 'pending', owner = NULL, nonce = '', epoch = epoch + 1, waits = NULL, wake_ms = ?
WHERE id = ?

-- name: held
SELECT id FROM runs WHERE owner = ? LIMIT ?

-- name: over
SELECT id FROM runs WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?

-- name: unread
SELECT i.run_id, i.body
FROM runs r INDEXED BY runs_unread CROSS JOIN inbox i INDEXED BY inbox_unread ON i.run_id = r.id AND i.body IS NOT NULL
WHERE r.owner = ? AND r.unread > 0 ORDER BY i.arrival

-- name: run
SELECT {columns} FROM runs WHERE id = ?

-- name: run_of_key
SELECT {columns} FROM runs INDEXED BY runs_by_key WHERE namespace = ? AND workflow = ? AND key = ? AND holds_key = 1

-- name: runs
SELECT {columns} FROM runs WHERE id IN (SELECT value FROM json_each(?))

-- name: journal
SELECT entries FROM journal WHERE run_id = ? ORDER BY position

-- name: messages
SELECT body FROM inbox INDEXED BY inbox_unread WHERE run_id = ? AND body IS NOT NULL ORDER BY arrival

-- name: beats
SELECT step, details FROM beats WHERE run_id = ?

-- name: blob
SELECT data FROM blobs WHERE run_id = ? AND digest = ?

-- name: newest
SELECT max(coalesce((SELECT created_ms FROM runs ORDER BY rowid DESC LIMIT 1), 0),
           coalesce((SELECT version FROM documents ORDER BY rowid DESC LIMIT 1), 0),
           coalesce((SELECT max(until_ms) FROM leases), 0))

-- name: clock
SELECT boot_id, offset_ms FROM clock

-- name: set_clock
INSERT OR REPLACE INTO clock (one, boot_id, offset_ms) VALUES (1, ?, ?)

-- name: create_document
INSERT INTO documents (namespace, kind, id, version, body, due_ms, expires_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
-- one that has expired counts as absent, but its version may not come again
ON CONFLICT (namespace, kind, id) DO UPDATE SET version = ?4, body = ?5, due_ms = ?6, expires_ms = ?7
WHERE expires_ms <= ?8 AND version < ?4

-- name: replace_document
UPDATE documents SET version = ?4, body = ?5, due_ms = ?6, expires_ms = ?7
WHERE namespace = ?1 AND kind = ?2 AND id = ?3
    AND version = ?9 AND version < ?4 AND (expires_ms IS NULL OR expires_ms > ?8)

-- name: stored_document
SELECT namespace, kind, id, version, body, due_ms, expires_ms FROM documents
WHERE namespace = ? AND kind = ? AND id = ?

-- name: document
SELECT namespace, kind, id, version, body, due_ms, expires_ms FROM documents
WHERE namespace = ? AND kind = ? AND id = ? AND (expires_ms IS NULL OR expires_ms > ?)

-- name: documents
SELECT namespace, kind, id, version, body, due_ms, expires_ms FROM documents
WHERE namespace = ? AND kind = ? AND id > ? AND (expires_ms IS NULL OR expires_ms > ?) ORDER BY id LIMIT ?

-- name: due_documents
SELECT namespace, kind, id, version, body, due_ms, expires_ms FROM documents INDEXED BY documents_due
WHERE namespace = ?1 AND kind = ?2 AND due_ms <= ?3 AND (expires_ms IS NULL OR expires_ms > ?3)
ORDER BY due_ms, id LIMIT ?4

-- name: over_documents
-- one whose versions have run ahead of the clock stays a moment longer: made anew, it must not repeat them
SELECT rowid FROM documents INDEXED BY documents_expired WHERE expires_ms <= ?1 AND version < ?1
ORDER BY expires_ms LIMIT ?2

-- name: forget_document
DELETE FROM documents WHERE rowid = ?
