#!/usr/bin/env bash
# Looks for known vulnerabilities in what gshare's programs call: VULNDB=file:///DIRECTORY hack/vuln.sh [PACKAGE...]. VULNDB is the address of a
# vulnerability database of Go: https:, or a folder with a copy. Without it the script looks for nothing, and says so instead of failing, since a machine
# without a network cannot know. It fails for a vulnerable function that is called, not for one that is only in a module.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${VULNDB:-}" ]; then
  echo "vuln: NOT RUN: VULNDB names no database, such as file:///DIRECTORY" >&2
  exit 0
fi
if [ "$#" = 0 ]; then set -- ./cmd/... ./deviceplugin/... ./draplugin/... ./plugins/...; fi
go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 -db "$VULNDB" "$@"
