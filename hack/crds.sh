#!/usr/bin/env bash
# Writes the CustomResourceDefinitions of manifests/serving from the types of vgpu/api/serving: hack/crds.sh [check]. check changes nothing, and
# fails if they differ from what it would write.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=manifests/serving
if [ "${1:-}" = check ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi
mkdir -p bin
go build -C hack/crds -o ../../bin/ tool # a module of its own, with exact versions
# kubectl apply keeps an object in one of its annotations, for which 256 KiB is the limit: hence the short descriptions. Rates are numbers
# with fractions, which controller-gen calls dangerous, as not every language prints them alike.
bin/controller-gen crd:maxDescLen=200,generateEmbeddedObjectMeta=true,allowDangerousTypes=true paths=./vgpu/api/serving/... output:crd:dir="$folder"
if [ "${1:-}" = check ] && ! diff -r --exclude=kustomization.yaml manifests/serving "$folder"; then
  echo "manifests/serving is not what vgpu/api/serving says (make crds writes it)"
  exit 1
fi
