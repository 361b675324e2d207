#!/usr/bin/env bash
# Builds the lab and runs it with the arguments given: hack/lab.sh demo --keep.
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/compile-env.sh
mkdir -p bin
"${compile[@]}" go build -ldflags='-s -w' -o bin/gshare-lab ./cmd/gshare-lab
exec bin/gshare-lab "$@"
