#!/usr/bin/env bash
# Checks the format of every Go file and runs go vet on every package.
set -euo pipefail
cd "$(dirname "$0")/.."

unformatted=$(hack/gofiles.sh | xargs -r gofmt -l)
if [ -n "$unformatted" ]; then
  echo "not formatted (make fmt mends it):"
  echo "$unformatted"
  exit 1
fi
source hack/compile-env.sh
"${compile[@]}" go vet ./...
