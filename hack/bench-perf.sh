#!/usr/bin/env bash
# Runs upstream's scheduler_perf with gshare's plugins. Arguments go to the harness, for example
#   hack/bench-perf.sh -perf-scheduling-label-filter=short
# The harness starts an etcd binary from PATH; it is built here from the module that go.mod names.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p bin
[ -x bin/etcd ] || CGO_ENABLED=0 go build -o bin/etcd go.etcd.io/etcd/server/v3
PATH="$PWD/bin:$PATH" go test ./test/bench/scheduler -run '^$' -bench BenchmarkPerfScheduling -benchtime 1x -timeout 60m "$@"
