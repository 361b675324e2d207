#!/usr/bin/env bash
# Fails if there are functions that no program reaches, and lists them. They go, with their tests. Helpers of tests are in folders named test.
# It reads all of Kubernetes, which takes a minute and 8 GB. So it remembers the files in which it last found nothing in bin/reached.sha256.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin
go build -C hack/tools -o ../../bin/ golang.org/x/tools/cmd/deadcode # a module of its own, with exact versions

others=(cmd/gshare-descheduler) # programs in modules of their own that call what is in the main module
read=$({ hack/gofiles.sh | grep -v '_test[.]go$'; printf '%s\n' go.mod "${others[@]/%//go.mod}" bin/deadcode hack/deadcode.sh; } | xargs sha256sum)
if [ "$read" = "$(cat bin/reached.sha256 2>/dev/null)" ]; then exit 0; fi

export GOWORK=$PWD/bin/deadcode.work
rm -f "$GOWORK"
go work init . "${others[@]}"
packages=$(go list ./... "${others[@]/#/./}" | grep -v /test/)
found=$(bin/deadcode $packages | sed '/^test[/]/d')
if [ -n "$found" ]; then
  echo "no program reaches these functions (delete them, or move them to the tests that call them):"
  echo "$found"
  exit 1
fi
echo "$read" >bin/reached.sha256
