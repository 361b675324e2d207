#!/usr/bin/env bash
# Runs each fuzz target of the repository for FUZZTIME. Go fuzzes one target of one package at a time.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=$(hack/gofiles.sh | { xargs -r grep -HoE '^func Fuzz[A-Za-z0-9_]*' || true; } | sort -u)
if [ -z "$targets" ]; then
  echo "no fuzz target found"
  exit 1
fi
while IFS=: read -r file declaration; do
  name=${declaration#func }
  echo "== $(dirname "$file") $name"
  go test -run '^$' -fuzz "^${name}\$" -fuzztime "${FUZZTIME:-10s}" "./$(dirname "$file")" </dev/null
done <<<"$targets"
