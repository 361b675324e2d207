#!/usr/bin/env bash
# Builds every command into bin/. The flags are those of the tests: other ones (-trimpath, -race) would compile
# Kubernetes a second time, which takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin
source hack/compile-env.sh
"${compile[@]}" go build -o bin/ ./cmd/...
ls -l bin
