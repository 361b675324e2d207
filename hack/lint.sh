#!/usr/bin/env bash
# Checks the format of every Go file and runs go vet, staticcheck and misspell: hack/lint.sh [quick]. quick, which CI runs, leaves out
# the last two: staticcheck reads all of Kubernetes again, which takes minutes the first time.
set -euo pipefail
cd "$(dirname "$0")/.."

unformatted=$(hack/gofiles.sh | xargs -r gofmt -l)
if [ -n "$unformatted" ]; then
  echo "not formatted (make fmt does it):"
  echo "$unformatted"
  exit 1
fi
source hack/compile-env.sh
"${compile[@]}" go vet ./...
[ "${1:-}" != quick ] || exit 0

mkdir -p bin
go build -C hack/tools -o ../../bin/ tool # a module of its own, with exact versions
bin/staticcheck ./...
git ls-files -- '*.go' '*.c' '*.h' '*.sh' '*.py' '*.md' '*.yaml' | xargs bin/misspell -error
