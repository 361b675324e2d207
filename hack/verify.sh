#!/usr/bin/env bash
# Checks what a reviewer should not have to: format, vet, a tidy go.mod, generated manifests, and words that belong to one machine only.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0

hack/lint.sh || status=1

if ! go mod tidy -diff; then
  echo "go.mod is not tidy (make tidy mends it)"
  status=1
fi

hack/crds.sh check || status=1

# The hook exports what its list says, and loads on old systems.
if command -v gcc >/dev/null; then
  hookdir=$(mktemp -d)
  { hack/hook.sh build "$hookdir" && hack/hook.sh check "$hookdir"; } || status=1
  rm -rf "$hookdir"
fi

# Paths on somebody's machine, and hosts of package mirrors. Each pattern has a bracket so that it does not match itself.
words='/[w]ork/|/[f]arm/|/[h]ome/[a-z]|/[r]oot/go|[p]roxy[.]golang[.]org|[d]eb[.]debian[.]org|[r]egistry[.]npmjs'
if git grep --untracked -n -I -i -E "$words" -- . ':!go.sum'; then
  echo "the lines above name one machine's paths or a package registry"
  status=1
fi

[ "$status" -eq 0 ] && echo "verified"
exit "$status"
