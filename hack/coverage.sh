#!/usr/bin/env bash
# Writes coverage.out and coverage.html for the rules of sharing and serving and for the scheduler's plugins.
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/compile-env.sh

mapfile -t packages < <(go list ./vgpu/... ./serving/rules/... ./plugins/... | grep -Ev '/vgpu/(kube|api)(/|$)')
"${compile[@]}" go test -vet=off -coverprofile=coverage.out "${packages[@]}"
go tool cover -html=coverage.out -o coverage.html
go tool cover -func=coverage.out | tail -n 1
