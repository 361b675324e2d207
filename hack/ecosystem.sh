#!/usr/bin/env bash
# Lets published programs and clients use gshare: the tests in modules of their own, whose dependencies are not gshare's. They need the network
# the first time, and the first builds of KEDA and KServe take minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
for module in test/*/go.mod cmd/*/go.mod hack/proxies/go.mod hack/release/go.mod; do
  (cd "$(dirname "$module")" && go test -count=1 ./...)
done
