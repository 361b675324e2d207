#!/usr/bin/env bash
# Runs the tests: hack/test.sh [all|unit|race|integration|long|cluster|layers]. `all` is what CI runs.
#
# Every run of `go test` goes through hack/testreport, which prints one line a package, the output of what failed, and
# as the last line of all "N passed, N failed, N skipped". With CI=true a skip must be listed in hack/allowed-skips.txt.
# LOG=FILE keeps all that the tests say, as JSON.
#
# The race detector needs its own build of everything a package imports. So it is used where goroutines meet and
# nothing imports k8s.io/kubernetes, whose second build would take longer than all tests together.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-all}
module=$(go list -m)
concurrent="^$module/(plugins|vgpu/packing|vgpu/kube|vgpu/token|deviceplugin|vgpu/node/(agent|grant|kubelet|mps|process|standalone|tokenserver))(/|\$)"
controlplane="^$module/(cmd|test)(/|\$)"
cluster="^$module/test/(cluster|monitoring)(/|\$)"
helm="$module/test/helm"
layers="$module/test/layers"

source hack/compile-env.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -buildvcs=false -o "$work/testreport" ./hack/testreport

packages() { go list ./...; }

# run passes its arguments to go test, less the part of vet that it would run: hack/lint.sh runs all of vet, and the two
# keep separate results for every package of Kubernetes. A failure does not stop the runs after it; the status is kept in
# a file because the runs stand on the left of a pipe. The tests themselves run with an ordinary collector.
run() { "${compile[@]}" go test -exec 'env -u GOGC -u GOMEMLIMIT' -vet=off -json "$@" || echo 1 >"$work/failed"; }

# of runs go test with the given flags on the packages that it reads, if there are any.
of() {
  local list
  mapfile -t list
  if [ "${#list[@]}" -gt 0 ]; then run "$@" "${list[@]}"; fi
}

layers() { run "$layers"; }
unit() {
  packages | { grep -Ev "$concurrent|$controlplane" || true; } | of
  run -run TestOpenbAllocation "$module/vgpu/packing" # the whole trace; under the race detector it takes a part of it
}
race() { packages | { grep -E "$concurrent" || true; } | of -race; }
integration() { packages | { grep -E "$controlplane" || true; } | { grep -Ev "$cluster|^$layers\$|^$helm\$" || true; } | of -p 1 -timeout 20m; }
# What takes long without a cluster: the GPU lane on the fake driver, the agent killed at every moment of a change of geometry, and
# the chart, for which Helm is compiled; it installs on API servers only that say their version.
long() {
  run -run '^TestLane$' "$module/cmd/gshare-node" -full
  run -run '^TestKilledBetweenSteps$' "$module/vgpu/node/agent" -full
  run -timeout 40m "$helm"
}
# The first of these tests builds the cluster's programs, unless the cluster cannot run here: hence the time. CI leaves out the
# long ones.
cluster() {
  local short=()
  [ "$mode" = all ] && short=(-short)
  packages | { grep -E "$cluster" || true; } | of -p 1 -timeout 120m "${short[@]}"
}

case $mode in
all)
  hack/lint.sh
  stages="layers unit race integration cluster"
  ;;
cluster) stages="long cluster" ;;
layers | unit | race | integration | long) stages=$mode ;;
*)
  echo "usage: hack/test.sh [all|unit|race|integration|long|cluster|layers]" >&2
  exit 2
  ;;
esac

for stage in $stages; do "$stage"; done | tee "${LOG:-/dev/null}" | "$work/testreport" -allowed hack/allowed-skips.txt
[ ! -e "$work/failed" ]
