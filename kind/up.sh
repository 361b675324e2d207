#!/usr/bin/env bash
# Creates a kind cluster with simulated GPUs and installs gshare in it: make kind-up. It needs docker or podman, kubectl and Go; no GPU.
# It pulls the node image and the bases of gshare's images, or with PULL=no makes them here, the node image only if there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
source kind/tools.sh

need kubectl go
need_provider
export VERSION=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || true)} # what kubectl gshare version shows
# What would fail after minutes of building is asked first.
if grep -qx gshare <<<"$(kind get clusters)"; then
  fail "there is a cluster with the name gshare already: make kind-demo uses it, make kind-down removes it"
fi
if [ "${PULL:-yes}" = no ] && [ -n "${NODE_IMAGE:-}" ] && ! "$PROVIDER" inspect --type image "$NODE_IMAGE" >/dev/null 2>&1; then
  fail "$PROVIDER has no image NODE_IMAGE=$NODE_IMAGE, and PULL=no pulls none: load it, or leave NODE_IMAGE out for the one of make kind-image"
fi
archives=$PWD/bin/kind
mkdir -p "$archives"
if [ "${PULL:-yes}" = no ]; then
  node_image=${NODE_IMAGE:-$LOCAL_NODE_IMAGE}
  "$PROVIDER" inspect --type image "$node_image" >/dev/null 2>&1 || kind/node-image.sh
  kind/gshare-images.sh
else
  node_image=${NODE_IMAGE:-kindest/node:$KUBERNETES_VERSION}
  for program in node scheduler; do
    # The whole name: podman would give a short one another registry than the nodes do.
    "$PROVIDER" build --target "gshare-$program" --build-arg VERSION="$VERSION" -t "docker.io/library/gshare-$program:dev" .
    rm -f "$archives/gshare-$program.tar" # podman does not write over an archive
    "$PROVIDER" save -o "$archives/gshare-$program.tar" "docker.io/library/gshare-$program:dev"
  done
fi
echo "$PROVIDER" >"$KEPT_PROVIDER"
kind create cluster --config kind/cluster.yaml --image "$node_image" --wait 3m
# Not by docker-image, which asks docker alone.
kind load image-archive --name gshare "$archives/gshare-node.tar" "$archives/gshare-scheduler.tar"
kubectl --context kind-gshare apply -k manifests/overlays/kind
kubectl --context kind-gshare -n gshare-system rollout status deployment/gshare-scheduler --timeout=3m
kubectl --context kind-gshare -n gshare-system rollout status daemonset/gshare-node --timeout=3m
echo "gshare is running. Next: make kind-demo"
