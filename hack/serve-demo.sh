#!/usr/bin/env bash
# Serves functions on simulated GPUs in three ways, under the same load, and compares them: hack/serve-demo.sh [--seconds 20]. It needs gcc.
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/compile-env.sh
"${compile[@]}" go build -o bin/ ./cmd/gshare ./cmd/gshare-node ./cmd/gshare-model ./hack/servedemo
built=bin/fake/built # its time stamp: newer than all C sources once they are built
if [ ! -e $built ] || [ -n "$(find hook -name '*.[chS]' -newer $built -o -name '*.def' -newer $built -o -name '*.sh' -newer $built)" ]; then
  hack/hook.sh build bin >/dev/null
  hook/fake/build.sh bin/fake
  touch $built
fi
exec bin/servedemo --bin bin --trace lab/dataset/testdata/serving/Azure2021_200.csv.gz "$@"
