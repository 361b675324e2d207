#!/usr/bin/env bash
# Removes the kind cluster: make kind-down.
set -euo pipefail
cd "$(dirname "$0")/.."
source kind/tools.sh

need go
need_provider
kind delete cluster --name gshare
rm -f "$KEPT_PROVIDER"
