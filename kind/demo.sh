#!/usr/bin/env bash
# Runs three pods that share one simulated GPU, and prints their placements and enforcement statuses: make kind-demo.
set -euo pipefail
cd "$(dirname "$0")/.."
source kind/tools.sh

need kubectl
kubectl --context kind-gshare apply -f kind/demo.yaml
kubectl --context kind-gshare wait --for=condition=Ready pod -l app=gshare-demo --timeout=3m
kubectl --context kind-gshare get pods -l app=gshare-demo -o wide
for annotation in placement enforcement-status; do
  echo "gshare.dev/$annotation:"
  kubectl --context kind-gshare get pods -l app=gshare-demo \
    -o jsonpath="{range .items[*]}  {.metadata.name}: {.metadata.annotations.gshare\.dev/$annotation}{\"\n\"}{end}"
done
