#!/usr/bin/env bash
# Runs the tests: hack/test.sh [all|quick|unit|race|integration|long|cluster|layers]. `all` is what CI runs. `quick` is for after each change: it
# runs what needs neither an API server nor the fake driver, without the race detector. hack/test.sh list prints what CI runs: a line for each
# package, with its flags for go test before it.
#
# Every run of `go test` goes through hack/testreport, which prints one line a package, the output of what failed, the slowest
# packages, and as the last line of all "N passed, N failed, N skipped". With CI=true a skip must be listed in hack/allowed-skips.txt.
# LOG=FILE keeps all that the tests say, as JSON.
#
# The race detector needs a second build of everything that a package imports. So it is used only where goroutines meet and nothing imports
# k8s.io/kubernetes, whose second build would take longer than all tests together.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-all}
module=$(go list -m)
concurrent="^$module/(plugins|serving|vgpu/packing|vgpu/kube|deviceplugin|vgpu/node/(agent|kubelet|mps|process|standalone|store|swap|tokenserver))(/|\$)"
# Tests that run a Kubernetes API server or scheduler, or measure the time of whole programs: one package at a time.
alone="^$module/(cmd/gshare/internal/(verdict/scheduled|web)|cmd/gshare-(lab/internal/trial|node|scheduler)|test/(admission|claims|controlplane|install|plugins|soak))(/|\$)"
cluster="^$module/test/(cluster|monitoring)(/|\$)"
elsewhere="^$module/test/(bench|helm|layers)(/|\$)" # benchmarks; long; a stage of its own

source hack/compile-env.sh
work=$(mktemp -d)
trap 'wait; rm -rf "$work"' EXIT # what runs beside may still write there
go build -buildvcs=false -o "$work/testreport" ./hack/testreport

# packages prints the packages that match the first pattern and none of the others.
packages() {
  local list
  list=$(go list ./... | grep -E "$1" || true)
  shift
  for pattern; do list=$(grep -Ev "$pattern" <<<"$list" || true); done
  echo "$list"
}

# run runs go test with its arguments, without the part of vet that go test includes: hack/lint.sh runs all of vet, and the two keep separate
# results for every package of Kubernetes. A failure does not stop the runs that follow; the status is kept in a file because the runs are on the
# left side of a pipe. The tests themselves run with the default garbage collection.
run() { go test -toolexec "${compile[*]}" -vet=off -json "$@" || echo 1 >"$work/failed"; }

# of runs go test with the given flags on the packages that it reads from standard input, if there are any. go test takes the result of an earlier
# run for a package if neither its code nor a file or variable that its tests read has changed since. It does not know what other programs depend
# on, so packages that may start some are always tested.
of() {
  local list always others
  list=$(cat)
  mapfile -t always < <(grep -xFf "$work/starters" <<<"$list")
  mapfile -t others < <(grep -vxFf "$work/starters" <<<"$list")
  if [ -n "${others[0]:-}" ]; then run "$@" "${others[@]}"; fi
  if [ -n "${always[0]:-}" ]; then run -count=1 "$@" "${always[@]}"; fi
}

# starters prints the packages whose tests may start programs, because they import os/exec or a package of this module that does, and the one whose
# tests may use the machine's driver.
starters() {
  echo "$module/vgpu/node/partition/nvml"
  go list -e -test -f '{{.ImportPath}}{{range .Imports}}|{{.}}{{end}}' ./... | awk -F'|' '
    { imports[$1] = $0 }
    /[|]os\/exec([|]|$)/ { starts[$1] }
    END {
      do {
        before = length(starts)
        for (name in imports) {
          n = split(imports[name], list)
          for (i = 2; i <= n; i++) if (list[i] in starts) starts[name]
        }
      } while (length(starts) > before)
      for (name in starts) if (sub(/[.]test$/, "", name)) print name
    }'
}

# hyperkube builds the program that test control planes run, once for all test binaries.
hyperkube() {
  hack/cluster.sh hyperkube
  export GSHARE_HYPERKUBE=$PWD/bin/cluster/hyperkube
}

# say tells the report which stage follows, and stage runs it.
say() { echo "{\"Action\":\"stage\",\"Output\":\"$1\"}"; }
stage() { say "$1" && spend "$1" "$1"; }

# spend NAME COMMAND... runs a command and records for the report how long it took: seconds, and seconds of processor time. The second line of
# `times` has the latter, for the children that this shell has waited for.
spend() {
  local name=$1 began=$SECONDS
  shift
  times >"$work/before-$name"
  "$@"
  times >"$work/after-$name"
  awk -v name="$name" -v took=$((SECONDS - began)) -F'[ms ]' '
    FNR == 2 { used = 60 * $1 + $2 + 60 * $4 + $5 - used }
    END { printf "{\"Action\":\"spent\",\"Output\":\"%7d s  %-12s %d s of processors\"}\n", took, name, used }
  ' "$work/before-$name" "$work/after-$name" >>"$work/spent"
}

layers() { run "$module/test/layers"; }
quick() {
  local list
  mapfile -t list < <(packages . "$alone" "$cluster" "$elsewhere" "^$module/(cmd/gshare-model|hook|test/enforce|test/fake|test/hostile|test/nvidia)(/|\$)")
  run -short "${list[@]}" # without of: after a change, also the results of packages that start programs are used again
}
# unit starts the tests of test/enforce first, because they take longer than any others and mostly wait: beside four busy processes 19 minutes.
unit() {
  run -count=1 -timeout 40m "$module/test/enforce" >"$work/enforce.json" &
  packages . "$concurrent" "$alone" "$cluster" "$elsewhere" "^$module/test/enforce\$" | of -timeout 20m
  run -run TestOpenbAllocation "$module/vgpu/packing" # on the whole trace; under the race detector the test uses a part of it
  wait
  cat "$work/enforce.json"
}
race() { packages "$concurrent" "$alone" | of -race -timeout 40m; } # beside other programs, and at a lower priority, it takes five times as long
integration() { packages "$alone" | of -p 1 -timeout 20m; }
# Tests that take long without a cluster: the GPU lane on the fake driver, the agent killed at every moment of a change of MIG geometry, the
# gateway's account of many random requests, the profiler and the planner ended at each step, the Python package, and the chart, for which Helm
# is compiled.
long() {
  run -run '^TestLane$' "$module/cmd/gshare-node" -full
  run -run '^TestKilledBetweenSteps(OfStores)?$' "$module/vgpu/node/agent" -full
  run -run '^TestAccount$' "$module/serving/gateway" -full
  run -run '^Test(Crashes|Kills)$' "$module/serving/profiles" -full
  run -run '^TestApplyCrashes$' "$module/serving/planner" -full
  run "$module/python" -full
  run -count=1 -timeout 40m "$module/test/helm"
}
cluster() { packages "$cluster" | of -p 1 -timeout 120m "$@"; }
# together runs the short tests of the cluster and the integration tests, which mostly wait for programs, side by side. The tests with the
# race detector run beside them, at a lower priority.
together() {
  cluster -short >"$work/cluster.json" &
  (renice -n 5 "$BASHPID" >/dev/null && stage race) >"$work/race.json" &
  stage integration
  wait
  cat "$work/race.json"
  say cluster
  cat "$work/cluster.json"
}

# listed prints what run would run, a package a line.
listed() {
  local flags=()
  while [[ $1 != "$module"/* ]]; do flags+=("$1") && shift; done
  printf '%s\n' "${@/#/${flags[*]} }"
}

starters >"$work/starters"
ci="layers unit together"
case $mode in
list)
  run() { listed "$@"; }
  say() { :; }
  spend() { "${@:2}"; }
  for stage in $ci; do stage "$stage"; done
  exit
  ;;
all)
  spend hyperkube hyperkube
  spend programs hack/cluster.sh build & # beside lint: little of it needs the same packages. If it fails, the tests of the cluster say why they are skipped.
  spend lint hack/lint.sh quick
  wait
  stages=$ci
  ;;
quick) stages="layers quick" ;;
cluster)
  hyperkube
  stages="long cluster"
  ;;
integration)
  hyperkube
  stages=integration
  ;;
layers | unit | race | long) stages=$mode ;;
*)
  echo "usage: hack/test.sh [all|list|quick|unit|race|integration|long|cluster|layers]" >&2
  exit 2
  ;;
esac

{
  for stage in $stages; do stage "$stage"; done
  cat "$work/spent"
} | tee "${LOG:-/dev/null}" | "$work/testreport" -allowed hack/allowed-skips.txt
[ ! -e "$work/failed" ]
