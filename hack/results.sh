#!/usr/bin/env bash
# Regenerates the simulations of test/bench/RESULTS.md, or checks them: hack/results.sh [--only openb,mig] [--check --runs 2].
set -euo pipefail
cd "$(dirname "$0")/.."
exec hack/lab.sh results "$@"
