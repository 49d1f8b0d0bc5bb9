#!/bin/sh
# Makes one Redis Cluster of the nodes in NODES ("host:port host:port ..."), half of them replicas, and returns when it
# can be used. Run again on a cluster that exists, it only waits.
set -eu

# `at host:port command...` asks one node.
at() {
  node=$1
  shift
  redis-cli -h "${node%:*}" -p "${node##*:}" "$@" 2>/dev/null
}

# A node that never finished its first sync cannot take over, so the cluster is not ready before all of them have.
is_ready() {
  at "$1" cluster info | grep -q '^cluster_state:ok' || return 1
  at "$1" info replication | grep -q '^role:master' || at "$1" info replication | grep -q '^master_link_status:up'
}

wait_for() {
  tries=240
  until "$@"; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { echo "gave up: $*" >&2; exit 1; }
    sleep 0.25
  done
}

for node in $NODES; do
  wait_for at "$node" ping >/dev/null
done

# A node that knows others belongs to a cluster already.
first=${NODES%% *}
if at "$first" cluster info | grep -q '^cluster_known_nodes:1[^0-9]*$'; then
  # shellcheck disable=SC2086 # one argument for each node
  redis-cli --cluster create $NODES --cluster-replicas 1 --cluster-yes
fi

for node in $NODES; do
  wait_for is_ready "$node"
done
echo "the cluster is ready"
