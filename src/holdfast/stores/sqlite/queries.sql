-- name: admit
INSERT INTO runs (id, namespace, workflow, key, queue, priority, digest, request_id, retention_ms, created_ms, status,
                  epoch, nonce, owner, wake_ms, length, holds_key, started_ms, change_id, version, attributes,
                  markers, lane, waits)
VALUES (:id, :namespace, :workflow, :key, :queue, :priority, :digest, :request_id, :retention_ms, :created_ms,
        :status, :epoch, :nonce, :owner, :wake_ms, :length, :holds_key, :started_ms, :change_id, :version,
        :attributes, :markers, :lane, :waits)
ON CONFLICT DO NOTHING

-- name: release_key
UPDATE runs SET holds_key = 0, epoch = :epoch WHERE id = :run_id

-- name: show
UPDATE runs SET attributes = :attributes, markers = :markers WHERE id = :run_id

-- name: forget_attributes
DELETE FROM attributes WHERE run_id = :run_id

-- name: index_attribute
INSERT INTO attributes (run_id, name, namespace, kind, value, created_ms)
VALUES (:run_id, :name, :namespace, :kind, :value, :created_ms)

-- name: progress
UPDATE runs SET length = :length, change_id = :change
WHERE id = :run_id AND epoch = :held_epoch AND nonce = :held_nonce AND length = :position AND change_id <> :change

-- name: progress_and_read
UPDATE runs SET unread = unread - :read, length = :length, change_id = :change
WHERE id = :run_id AND epoch = :held_epoch AND nonce = :held_nonce AND length = :position AND change_id <> :change

-- name: settle
UPDATE runs SET status = :status, epoch = :epoch, nonce = :nonce, owner = :owner, length = :length,
    unread = unread - :read, started_ms = :started_ms,
    -- a message that came while the run was being let go must not wait for a timer
    wake_ms = CASE WHEN :status = 'waiting' AND unread > :read THEN :now_ms ELSE :wake_ms END,
    finished_ms = :finished_ms, expires_ms = :expires_ms, output = :output, error = :error, change_id = :change,
    waits = :waits, aside = :aside
WHERE id = :run_id AND epoch = :held_epoch AND nonce = :held_nonce AND length = :position AND change_id <> :change
    -- a run ends over an empty inbox
    AND (:finished_ms IS NULL OR finished_ms IS NOT NULL OR unread = :read)

-- name: append
INSERT INTO journal (run_id, position, entries) VALUES (:run_id, :position, :entries)

-- name: keep_blob
INSERT OR IGNORE INTO blobs (run_id, digest, data) VALUES (:run_id, :digest, :data)

-- name: copy_blob
INSERT OR IGNORE INTO blobs (run_id, digest, data) SELECT :watcher, digest, data FROM blobs WHERE run_id = :run_id
    AND digest = :digest

-- name: keep_beat
INSERT OR REPLACE INTO beats (run_id, step, details) VALUES (:run_id, :step, :details)

-- name: read_message
UPDATE inbox SET body = NULL WHERE run_id = :run_id AND id = :message_id

-- name: unread_among
SELECT count(*) FROM inbox WHERE run_id = :run_id AND body IS NOT NULL
    AND id IN (SELECT value FROM json_each(:message_ids))

-- name: move_messages
UPDATE inbox SET run_id = :successor WHERE run_id = :run_id AND id IN (SELECT value FROM json_each(:message_ids))

-- name: count_unread
UPDATE runs SET unread = unread + :count WHERE id = :run_id

-- name: hand_on
UPDATE inbox SET run_id = :run_id, body = :body WHERE run_id = :inherits AND id = :message_id AND scope = :scope

-- name: forget_journal
DELETE FROM journal WHERE run_id = :run_id

-- name: forget_blobs
DELETE FROM blobs WHERE run_id = :run_id

-- name: add_watcher
INSERT OR IGNORE INTO watchers (run_id, watcher, step) VALUES (:run_id, :watcher, :step)

-- name: watchers
SELECT watcher, step FROM watchers WHERE run_id = :run_id

-- name: add_message
INSERT OR IGNORE INTO inbox (run_id, id, scope, body)
SELECT :run_id, :message_id, :scope, :body WHERE EXISTS (SELECT 1 FROM runs WHERE id = :run_id AND finished_ms IS NULL)

-- name: receiver_in_scope
SELECT run_id FROM inbox INDEXED BY inbox_scopes WHERE scope = :scope AND id IN (:message_id, :formerly)
    AND scope IS NOT NULL

-- name: received
SELECT run_id FROM inbox WHERE run_id = :run_id AND id = :message_id

-- name: received_in_scope
SELECT 1 FROM inbox WHERE run_id = :run_id AND id = :message_id AND scope = :scope

-- name: token_holder
SELECT run_id FROM hooks INDEXED BY hooks_by_token WHERE namespace = :namespace AND token = :token AND token IS NOT NULL

-- name: hook_of_token
SELECT name, token, schema, run_id FROM hooks INDEXED BY hooks_by_token
WHERE namespace = :namespace AND token = :token AND token IS NOT NULL

-- name: hook
SELECT name, token, schema FROM hooks WHERE run_id = :run_id AND name = :name ORDER BY opening DESC LIMIT 1

-- name: open_hook
INSERT INTO hooks (run_id, name, namespace, token, schema) VALUES (:run_id, :name, :namespace, :token, :schema)

-- name: close_hook
DELETE FROM hooks WHERE run_id = :run_id AND name = :name AND token IS :token

-- name: free_token
DELETE FROM hooks WHERE namespace = :namespace AND token = :token AND token IS NOT NULL

-- name: served
SELECT workflows FROM leases WHERE namespace = :namespace AND until_ms > :now_ms

-- name: members
SELECT owner, joined_ms, until_ms, namespace, workflows, host, pid, concurrency,
    (SELECT count(*) FROM runs INDEXED BY runs_held WHERE runs.owner = leases.owner AND runs.owner IS NOT NULL)
FROM leases WHERE namespace = :namespace AND until_ms > :now_ms ORDER BY joined_ms, owner

-- name: live
SELECT host, pid FROM leases WHERE until_ms > :now_ms ORDER BY joined_ms, owner

-- name: count_status
SELECT count(*) FROM (SELECT 1 FROM runs INDEXED BY runs_by_status WHERE namespace = :namespace
    AND status = :status LIMIT :limit)

-- name: next_workflow
SELECT min(workflow) FROM runs INDEXED BY runs_ready WHERE namespace = :namespace AND workflow > :after
    AND wake_ms IS NOT NULL

-- name: count_ready
SELECT count(*) FROM (SELECT 1 FROM runs INDEXED BY runs_ready
WHERE namespace = :namespace AND workflow = :workflow AND priority = :priority AND wake_ms <= :now_ms LIMIT :limit)

-- name: first_waking
SELECT wake_ms, queue FROM runs INDEXED BY runs_ready
WHERE namespace = :namespace AND workflow = :workflow AND priority = :priority AND wake_ms IS NOT NULL
ORDER BY wake_ms LIMIT 1

-- name: tell
UPDATE runs SET unread = unread + 1, wake_ms = CASE WHEN status = 'waiting' THEN :now_ms ELSE wake_ms END
WHERE id = :run_id

-- name: woken
SELECT namespace, workflow, wake_ms FROM runs
WHERE id IN (SELECT value FROM json_each(:run_ids)) AND wake_ms IS NOT NULL

-- name: at_fence
SELECT 1 FROM runs WHERE id = :run_id AND epoch = :epoch AND nonce = :nonce

-- name: next_priority
SELECT priority FROM runs INDEXED BY runs_ready
WHERE namespace = :namespace AND workflow = :workflow AND priority < :below AND wake_ms IS NOT NULL
ORDER BY priority DESC LIMIT 1

-- name: ready
SELECT id, wake_ms, tag FROM runs INDEXED BY runs_ready
WHERE namespace = :namespace AND workflow = :workflow AND priority = :priority AND wake_ms <= :now_ms
ORDER BY wake_ms LIMIT :limit

-- name: first_wake
SELECT min(wake_ms) FROM runs INDEXED BY runs_ready
WHERE namespace = :namespace AND workflow = :workflow AND priority = :priority AND wake_ms IS NOT NULL

-- name: claim
UPDATE runs SET status = 'running', owner = :owner, nonce = :nonce, epoch = epoch + 1, wake_ms = NULL,
    started_ms = coalesce(started_ms, :now_ms)
WHERE id = :run_id

-- name: join
INSERT INTO leases (owner, until_ms, joined_ms, namespace, workflows, host, pid, concurrency)
VALUES (:owner, :until_ms, :joined_ms, :namespace, :workflows, :host, :pid, :concurrency)

-- name: renew
UPDATE leases SET until_ms = :until_ms WHERE owner = :owner AND until_ms > :now_ms

-- name: leave
DELETE FROM leases WHERE owner = :owner

-- name: expired
SELECT owner FROM leases WHERE until_ms <= :now_ms

-- name: next_owner
SELECT min(owner) FROM runs INDEXED BY runs_held WHERE owner > :after AND owner IS NOT NULL

-- name: has_lease
SELECT 1 FROM leases WHERE owner = :owner

-- name: free
UPDATE runs SET status = 'pending', owner = NULL, nonce = '', epoch = epoch + 1, waits = NULL, wake_ms = :now_ms
WHERE id = :run_id

-- name: held
SELECT id FROM runs WHERE owner = :owner LIMIT :limit

-- name: over
SELECT id FROM runs WHERE expires_ms <= :now_ms ORDER BY expires_ms LIMIT :limit

-- name: unread
SELECT i.run_id, i.body
FROM runs r INDEXED BY runs_unread CROSS JOIN inbox i INDEXED BY inbox_unread ON i.run_id = r.id AND i.body IS NOT NULL
WHERE r.owner = :owner AND r.unread > 0 ORDER BY i.arrival

-- name: run
SELECT {columns} FROM runs WHERE id = :run_id

-- name: run_of_key
SELECT {columns} FROM runs INDEXED BY runs_by_key WHERE namespace = :namespace AND workflow = :workflow
    AND key = :key AND holds_key = 1

-- name: holder_of
-- for a start that expects one; none if the run of the start is there already
SELECT {columns} FROM runs INDEXED BY runs_by_key WHERE namespace = :namespace AND workflow = :workflow
    AND key = :key AND holds_key = 1 AND NOT EXISTS (SELECT 1 FROM runs WHERE id = :run_id)

-- name: in_the_way
-- of an admission: the run itself, or else the one that holds its key
SELECT {columns} FROM runs WHERE id = coalesce(
    (SELECT id FROM runs WHERE id = :run_id),
    (SELECT id FROM runs INDEXED BY runs_by_key WHERE namespace = :namespace AND workflow = :workflow
        AND key = :key AND holds_key = 1))

-- name: runs
SELECT {columns} FROM runs WHERE id IN (SELECT value FROM json_each(:run_ids))

-- name: journal
SELECT entries FROM journal WHERE run_id = :run_id ORDER BY position

-- name: messages
SELECT body FROM inbox INDEXED BY inbox_unread WHERE run_id = :run_id AND body IS NOT NULL ORDER BY arrival

-- name: beats
SELECT step, details FROM beats WHERE run_id = :run_id

-- name: blob
SELECT data FROM blobs WHERE run_id = :run_id AND digest = :digest

-- name: newest
SELECT max(coalesce((SELECT created_ms FROM runs ORDER BY rowid DESC LIMIT 1), 0),
           coalesce((SELECT version FROM documents ORDER BY rowid DESC LIMIT 1), 0),
           coalesce((SELECT max(until_ms) FROM leases), 0))

-- name: clock
SELECT boot_id, offset_ms FROM clock

-- name: set_clock
INSERT OR REPLACE INTO clock (one, boot_id, offset_ms) VALUES (1, :boot_id, :offset_ms)

-- name: create_document
INSERT INTO documents (namespace, kind, id, version, body, due_ms, expires_ms)
VALUES (:namespace, :kind, :id, :version, :body, :due_ms, :expires_ms)
-- one that has expired counts as absent, but its version may not come again
ON CONFLICT (namespace, kind, id) DO UPDATE SET version = :version, body = :body, due_ms = :due_ms,
    expires_ms = :expires_ms
WHERE expires_ms <= :now_ms AND version < :version

-- name: replace_document
UPDATE documents SET version = :version, body = :body, due_ms = :due_ms, expires_ms = :expires_ms
WHERE namespace = :namespace AND kind = :kind AND id = :id
    AND version = :replaces AND version < :version AND (expires_ms IS NULL OR expires_ms > :now_ms)

-- name: stored_document
SELECT namespace, kind, id, version, body, due_ms, expires_ms FROM documents
WHERE namespace = :namespace AND kind = :kind AND id = :id

-- name: document
SELECT namespace, kind, id, version, body, due_ms, expires_ms FROM documents
WHERE namespace = :namespace AND kind = :kind AND id = :id AND (expires_ms IS NULL OR expires_ms > :now_ms)

-- name: documents
SELECT namespace, kind, id, version, body, due_ms, expires_ms FROM documents
WHERE namespace = :namespace AND kind = :kind AND id > :after AND (expires_ms IS NULL OR expires_ms > :now_ms)
ORDER BY id LIMIT :limit

-- name: due_documents
SELECT namespace, kind, id, version, body, due_ms, expires_ms FROM documents INDEXED BY documents_due
WHERE namespace = :namespace AND kind = :kind AND due_ms <= :now_ms AND (expires_ms IS NULL OR expires_ms > :now_ms)
ORDER BY due_ms, id LIMIT :limit

-- name: over_documents
-- one whose versions have run ahead of the clock stays a moment longer: made again, it must not repeat them
SELECT rowid FROM documents INDEXED BY documents_expired WHERE expires_ms <= :now_ms AND version < :now_ms
ORDER BY expires_ms LIMIT :limit

-- name: forget_document
DELETE FROM documents WHERE rowid = :rowid

-- name: lane
SELECT namespace, name, width, declared, paused, next_number, empty_since_ms FROM lanes
WHERE namespace = :namespace AND name = :name

-- name: lanes
SELECT namespace, name, width, declared, paused, next_number, empty_since_ms FROM lanes
WHERE namespace = :namespace AND name > :after ORDER BY name LIMIT :limit

-- name: keep_lane
INSERT INTO lanes (namespace, name, width, declared, paused, next_number, empty_since_ms)
VALUES (:namespace, :name, :width, :declared, :paused, :next_number, :empty_since_ms)
ON CONFLICT (namespace, name) DO UPDATE SET width = :width, declared = :declared, paused = :paused,
    next_number = :next_number, empty_since_ms = :empty_since_ms

-- name: empty_lanes
SELECT namespace, name, width, declared, paused, next_number, empty_since_ms FROM lanes INDEXED BY lanes_empty
WHERE empty_since_ms <= :empty_since_ms AND paused = 0 AND width = declared LIMIT :limit

-- name: forget_lane
DELETE FROM lanes WHERE namespace = :namespace AND name = :name

-- name: add_place
INSERT OR IGNORE INTO places (run_id, namespace, lane, number, priority, wake_ms, active)
VALUES (:run_id, :namespace, :lane, :number, :priority, :wake_ms, 0)

-- name: give_up_place
DELETE FROM places WHERE run_id = :run_id

-- name: place
SELECT number, priority, active FROM places WHERE run_id = :run_id

-- name: count_places
SELECT count(*) FROM (SELECT 1 FROM places INDEXED BY places_in_order
WHERE namespace = :namespace AND lane = :lane AND active = :active LIMIT :limit)

-- name: first_places
SELECT run_id, number, priority, wake_ms, active FROM places INDEXED BY places_in_order
WHERE namespace = :namespace AND lane = :lane AND active = :active ORDER BY priority DESC, number LIMIT :limit

-- name: count_ahead
SELECT count(*) FROM places INDEXED BY places_in_order WHERE namespace = :namespace AND lane = :lane
    AND (active = 1 OR active = 0 AND (priority > :priority OR priority = :priority AND number < :number))

-- name: activate_place
UPDATE places SET active = 1 WHERE run_id = :run_id

-- name: park
UPDATE runs SET status = :status, epoch = :epoch, nonce = :nonce, owner = :owner, wake_ms = :wake_ms,
    started_ms = :started_ms
WHERE id = :run_id

-- name: wake
-- A process of an earlier version may have ended it, and knows of no lanes.
UPDATE runs SET wake_ms = :wake_ms WHERE id = :run_id AND status = 'pending' AND wake_ms IS NULL

-- name: all_lanes
SELECT namespace, name, width, declared, paused, next_number, empty_since_ms FROM lanes
WHERE namespace >= '' LIMIT :limit

-- name: placeless
SELECT id FROM runs INDEXED BY runs_in_lanes WHERE lane > '' AND finished_ms IS NULL AND aside = 0
    AND NOT EXISTS (SELECT 1 FROM places WHERE run_id = runs.id) LIMIT :limit

-- name: keep_out
INSERT INTO outs (namespace, id, topic, key, payload, at_ms) VALUES (:namespace, :id, :topic, :key, :payload, :at_ms)

-- name: outs
SELECT number, namespace, id, topic, key, payload, at_ms FROM outs INDEXED BY outs_in_order
WHERE namespace = :namespace AND number > :after ORDER BY number LIMIT :limit

-- name: drop_out
DELETE FROM outs WHERE number = :number AND namespace = :namespace

-- name: keep_audit
INSERT INTO audits (namespace, id, actor, action, subject, at_ms, detail)
VALUES (:namespace, :id, :actor, :action, :subject, :at_ms, :detail)

-- name: audits
SELECT number, namespace, id, actor, action, subject, at_ms, detail FROM audits INDEXED BY audits_in_order
WHERE namespace = :namespace AND number > :after ORDER BY number LIMIT :limit

-- name: drop_audit
DELETE FROM audits WHERE number = :number AND namespace = :namespace

-- name: stale_places
SELECT p.run_id, p.namespace, p.lane FROM places p INDEXED BY places_active LEFT JOIN runs r ON r.id = p.run_id
WHERE p.active = 1 AND (r.id IS NULL OR r.finished_ms IS NOT NULL) LIMIT :limit

-- name: rate
SELECT due_us FROM rates WHERE namespace = :namespace AND name = :name

-- name: keep_rate
INSERT INTO rates (namespace, name, due_us) VALUES (:namespace, :name, :due_us)
ON CONFLICT (namespace, name) DO UPDATE SET due_us = :due_us

-- name: is_rate_due
SELECT 1 FROM rates INDEXED BY rates_due WHERE due_us <= :now_us LIMIT 1

-- name: forget_rates
DELETE FROM rates WHERE (namespace, name) IN (
    SELECT namespace, name FROM rates INDEXED BY rates_due WHERE due_us <= :now_us LIMIT :limit)

-- name: admit_later
UPDATE runs SET status = :status, epoch = :epoch, nonce = :nonce, owner = :owner, wake_ms = :wake_ms,
    started_ms = :started_ms, waits = :waits
WHERE id = :run_id

-- name: reached
SELECT reached FROM lines WHERE namespace = :namespace AND workflow = :workflow AND priority = :priority

-- name: next_tag
SELECT next_tag FROM shares WHERE namespace = :namespace AND workflow = :workflow AND priority = :priority
    AND share = :share

-- name: keep_share
INSERT INTO shares (namespace, workflow, priority, share, next_tag)
VALUES (:namespace, :workflow, :priority, :share, :next_tag)
ON CONFLICT (namespace, workflow, priority, share) DO UPDATE SET next_tag = :next_tag

-- name: tag
UPDATE runs SET tag = :tag, share = :share WHERE id = :run_id

-- name: end_turn
UPDATE runs SET tag = NULL WHERE id = :run_id

-- name: first_turns
SELECT id, tag FROM runs INDEXED BY runs_by_turn
WHERE namespace = :namespace AND workflow = :workflow AND priority = :priority AND tag IS NOT NULL
    AND wake_ms <= :now_ms
ORDER BY tag, wake_ms LIMIT :limit

-- name: reach
INSERT INTO lines (namespace, workflow, priority, reached) VALUES (:namespace, :workflow, :priority, :reached)
ON CONFLICT (namespace, workflow, priority) DO UPDATE SET reached = max(reached, :reached)

-- name: turn
SELECT share, (SELECT count(*) FROM runs o INDEXED BY runs_by_turn WHERE o.namespace = r.namespace
    AND o.workflow = r.workflow AND o.priority = r.priority AND (o.tag < r.tag OR o.tag = r.tag
    AND o.wake_ms < r.wake_ms) AND o.wake_ms <= :now_ms AND o.tag IS NOT NULL)
FROM runs r WHERE id = :run_id AND tag IS NOT NULL AND wake_ms IS NOT NULL

-- name: lines
SELECT namespace, workflow, priority, reached, EXISTS (SELECT 1 FROM runs r INDEXED BY runs_by_turn
    WHERE r.namespace = lines.namespace AND r.workflow = lines.workflow AND r.priority = lines.priority
    AND r.tag IS NOT NULL AND r.wake_ms IS NOT NULL)
FROM lines

-- name: forget_line
DELETE FROM lines WHERE namespace = :namespace AND workflow = :workflow AND priority = :priority

-- name: forget_shares
DELETE FROM shares WHERE namespace = :namespace AND workflow = :workflow AND priority = :priority
    AND next_tag <= :next_tag

-- name: renew_input
UPDATE runs SET digest = :digest, version = :version, attributes = :attributes, nonce = :nonce, change_id = :change_id,
    wake_ms = CASE WHEN wake_ms IS NULL THEN NULL ELSE :wake_ms END
WHERE id = :run_id AND epoch = :held_epoch AND nonce = :held_nonce AND status = 'pending' AND holds_key = 1
    AND change_id <> :change_id

-- name: put_off_place
UPDATE places SET wake_ms = :wake_ms WHERE run_id = :run_id AND active = 0

-- name: bytes_unread
SELECT coalesce(sum(length(body)), 0) FROM inbox INDEXED BY inbox_unread WHERE run_id = :run_id AND body IS NOT NULL

-- name: wake_sooner
UPDATE runs SET wake_ms = :wake_ms WHERE id = :run_id AND wake_ms > :wake_ms
