#!/usr/bin/env bash
# Looks for known vulnerabilities in what gshare's programs call: VULNDB=file:///DIRECTORY hack/vuln.sh [PACKAGE...]. VULNDB is the address of a
# Go vulnerability database: https:, or a folder with a copy. Without VULNDB the script checks nothing and says so. It does not fail then,
# because a machine without a network cannot look. It fails if a vulnerable function is called, but not if a vulnerable module is merely
# required.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${VULNDB:-}" ]; then
  echo "vuln: NOT RUN: VULNDB names no database, such as file:///DIRECTORY" >&2
  exit 0
fi
if [ "$#" = 0 ]; then set -- ./cmd/... ./deviceplugin/... ./draplugin/... ./plugins/...; fi
go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 -db "$VULNDB" "$@"
