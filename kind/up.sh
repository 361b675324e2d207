#!/usr/bin/env bash
# Creates a kind cluster with simulated GPUs and installs gshare in it: make kind-up. It needs Docker, kubectl, Go, and a network for
# images and Go modules; no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
source kind/tools.sh

need docker kubectl go
docker info >/dev/null || fail "cannot connect to docker: start it, or add yourself to its group"
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || true)} # what kubectl gshare version shows
docker build --target gshare-node --build-arg VERSION="$version" -t gshare-node:dev .
docker build --target gshare-scheduler --build-arg VERSION="$version" -t gshare-scheduler:dev .
kind create cluster --config kind/cluster.yaml --image "$NODE_IMAGE" --wait 3m
kind load docker-image --name gshare gshare-node:dev gshare-scheduler:dev
kubectl --context kind-gshare apply -k manifests/overlays/kind
kubectl --context kind-gshare -n gshare-system rollout status deployment/gshare-scheduler --timeout=3m
kubectl --context kind-gshare -n gshare-system rollout status daemonset/gshare-node --timeout=3m
echo "gshare is running. Next: make kind-demo"
