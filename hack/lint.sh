#!/usr/bin/env bash
# Checks the format of every Go file, runs the checks of go vet and staticcheck in one pass (hack/tools/vet), deadcode and misspell, and fails if
# go.mod is not tidy or what is generated from the types of the API is not what they say, or if a file names something of one machine. CI runs the
# same.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0

unformatted=$(hack/gofiles.sh | xargs -r gofmt -l)
if [ -n "$unformatted" ]; then
  echo "not formatted (make fmt does it):"
  echo "$unformatted"
  status=1
fi
source hack/compile-env.sh
mkdir -p bin
go build -C hack/tools -o ../../bin/ ./vet tool # a module of its own, with exact versions
"${compile[@]}" go vet -vettool="$PWD/bin/vet" ./... || status=1
hack/deadcode.sh || status=1
CGO_ENABLED=0 GOOS=windows "${compile[@]}" go build -o /dev/null ./cmd/gshare || status=1 # the kubectl plugin
git ls-files -- '*.go' '*.c' '*.h' '*.sh' '*.py' '*.md' '*.yaml' | xargs bin/misspell -error || status=1
if ! go mod tidy -diff; then
  echo "go.mod is not tidy (make tidy mends it)"
  status=1
fi
hack/crds.sh check || status=1
# Paths on somebody's machine, and hosts of package mirrors. Each pattern has a bracket so that it does not match itself.
words='/[w]ork/|/[f]arm/|/[h]ome/[a-z]|/[r]oot/go|[p]roxy[.]golang[.]org|[d]eb[.]debian[.]org|[r]egistry[.]npmjs'
if git grep --untracked -n -I -i -E "$words" -- . ':!go.sum'; then
  echo "the lines above name one machine's paths or a package registry"
  status=1
fi
exit "$status"
