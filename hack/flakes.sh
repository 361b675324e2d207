#!/usr/bin/env bash
# Looks for tests that fail now and then: FLAKES=20m hack/flakes.sh [PACKAGES]. It runs the tests as CI does, again and again beside eight busy
# processes, until the time has passed; see hack/flakes. Without arguments it runs all packages that CI runs.
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/compile-env.sh
export CI=true CGO_ENABLED=1 # as in .ci/run
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
hack/cluster.sh hyperkube
export GSHARE_HYPERKUBE=$PWD/bin/cluster/hyperkube
[[ $# -gt 0 && "$*" != *test/cluster* ]] || hack/cluster.sh build || true # as in hack/test.sh
go build -buildvcs=false -o "$work/flakes" ./hack/flakes
hack/test.sh list >"$work/list"
trap : INT # let the program below print what it has found so far
status=0
"$work/flakes" -for "${FLAKES:-20m}" -compile "${compile[*]}" "$@" <"$work/list" || status=$?
exit "$status"
