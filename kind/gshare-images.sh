#!/usr/bin/env bash
# Builds gshare on this machine and writes its images to bin/kind/gshare-*.tar, without a base image: for make kind-up PULL=no. The Dockerfile
# makes the same images where bases can be pulled.
set -euo pipefail
cd "$(dirname "$0")/.."
source kind/tools.sh
source hack/compile-env.sh
source hack/c-library.sh

need go gcc tar
out=$PWD/bin/kind
ldflags="-s -w -X github.com/gshare-dev/gshare/cmd/internal/release.version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || true)}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work"/node/usr/local/bin "$work"/node/usr/lib/gshare "$work"/scheduler/usr/local/bin

"${compile[@]}" go build -ldflags="$ldflags" -o "$work/node/usr/local/bin/" ./cmd/gshare-node ./cmd/gshare
hack/hook.sh build "$work/hook"
cp "$work"/hook/{libgshare.so,libgshare-mps.so,gshare-drain,libgshare_store.so,gshare_store.py,gshare_safetensors.py} "$work/node/usr/lib/gshare/"
library gcc "$work/node"
image "$work/node" '"gshare-node"' "$out/gshare-node.tar" docker.io/library/gshare-node:dev

"${compile[@]}" go build -ldflags="$ldflags -linkmode external -extldflags '-static -Wl,--no-warnings'" -o "$work/scheduler/usr/local/bin/" ./cmd/gshare-scheduler
image "$work/scheduler" '"gshare-scheduler"' "$out/gshare-scheduler.tar" docker.io/library/gshare-scheduler:dev
