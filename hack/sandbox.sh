#!/usr/bin/env bash
# Builds the sandbox and runs it with the arguments given: hack/sandbox.sh demo --keep.
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/compile-env.sh
mkdir -p bin
"${compile[@]}" go build -ldflags='-s -w' -o bin/gshare-sandbox ./cmd/gshare-sandbox
exec bin/gshare-sandbox "$@"
