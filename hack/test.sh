#!/usr/bin/env bash
# Runs the tests: hack/test.sh MODE, with one of
#
#   core      what proves that the product works (make test)
#   rest      lint and all other tests; those that take minutes in turn, within BUDGET (make test-all; CI runs core and rest)
#   quick     after each change: what needs neither an API server nor the fake driver; the packages of the change with the race detector, too
#   race PKG  the tests of packages with the race detector; without PKG those of all packages where goroutines meet
#   layers, unit, integration   parts of the above
#   long      every test that takes minutes, or only those whose name contains the argument (make e2e)
#   list      prints what CI runs but for the long tests: a line for each package, with its flags for go test before it
#
# Every run of `go test` goes through hack/testreport, which prints one line a package, the output of what failed, the slowest
# packages, and as the last line of all "N passed, N failed, N skipped". With CI=true a skip must be listed in hack/allowed-skips.txt.
# LOG=FILE keeps all that the tests say, as JSON.
#
# The race detector needs a second build of everything that a package imports. So it is used only where goroutines meet and nothing imports
# k8s.io/kubernetes, whose second build would take longer than all tests together.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-core}
shift || true
module=$(go list -m)
concurrent="^$module/(plugins|serving|vgpu/packing|vgpu/kube|deviceplugin|node/(agent|kubelet|mps|process|standalone|store|tokenserver))(/|\$)"
# Tests that run a Kubernetes API server or scheduler, or measure the time of whole programs: one package at a time.
alone="^$module/(cmd/gshare/internal/(verdict/scheduled|web)|cmd/gshare-(lab/internal/trial|node|scheduler)|test/(admission|claims|controlplane|install|plugins|soak))(/|\$)"
driver="^$module/(cmd/gshare-model|hook|test/enforce|test/fake|test/hostile|test/nvidia)(/|\$)" # tests that run programs on the fake driver
minutes="^$module/test/(cluster|helm|monitoring)(/|\$)"                                        # hack/longtests runs them
elsewhere="^$module/test/(bench|layers)(/|\$)"                                                 # benchmarks; a stage of its own
shown="^$module/test/(plugins|admission)\$"                                                    # on an API server, in core

source hack/compile-env.sh
work=$(mktemp -d)
trap 'wait; rm -rf "$work"' EXIT # what runs beside may still write there
go build -buildvcs=false -o "$work/" ./hack/testreport ./hack/longtests

# packages prints the packages that match the first pattern and none of the others.
packages() {
  local list
  list=$(go list ./... | grep -E "$1" || true)
  shift
  for pattern; do list=$(grep -Ev "$pattern" <<<"$list" || true); done
  echo "$list"
}

# changed prints the packages with files that differ from the main branch, or from the last commit on it.
changed() {
  local base
  base=$(git merge-base HEAD "${BASE:-main}" 2>/dev/null) || return 0
  [ "$base" != "$(git rev-parse HEAD)" ] || base=HEAD
  { git diff --name-only "$base" -- '*.go' && git ls-files --others --exclude-standard -- '*.go'; } |
    xargs -r -n 1 dirname | sort -u | while read -r folder; do if [ -d "$folder" ]; then go list "./$folder" 2>/dev/null || true; fi; done
}

# run runs go test with its arguments, without the part of vet that go test includes: hack/lint.sh runs all of it. A failure does not stop the
# runs that follow; the status is kept in a file because the runs are on the left side of a pipe. The tests themselves run with the default
# garbage collection.
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
  echo "$module/node/partition/nvml"
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

# beside NAME runs a stage in the background, and after prints what it said, once it has ended.
beside() { stage "$1" >"$work/$1.json" & }
after() { cat "${@/#/$work/}"; }

layers() { run "$module/test/layers"; }
quick() { packages . "$alone" "$driver" "$minutes" "$elsewhere" >"$work/quick" && run -short $(<"$work/quick"); }
touched() { changed | { grep -E "$concurrent" || true; } | { grep -Ev "$alone" || true; } | of -short -race; }

# What the core consists of: quick, and
hook() { run -count=1 "$module/hook"; }
agent() { hack/cluster.sh build && run -count=1 -timeout 20m -run '^TestAgent$' "$module/test/cluster"; }
plugins() { packages "$shown" | of -p 1 -timeout 20m; }
core() {
  beside hook
  spend hyperkube hyperkube
  beside agent
  stage layers
  stage quick
  stage plugins
  wait
  after hook.json agent.json
}

# What else there is. test/enforce takes longest and mostly waits.
enforce() { run -count=1 -timeout 40m "$module/test/enforce"; }
unit() {
  packages "$driver" "^$module/(hook|test/enforce)\$" | of -timeout 20m
  run $(grep -rl 'testing[.]Short()' --include='*_test.go' hack lab vgpu | xargs -n 1 dirname | sort -u | sed "s|^|$module/|") # what quick leaves out
}
race() { # beside other programs, and at a lower priority, it takes five times as long
  if [ $# -gt 0 ]; then run -count=1 -race "$@"; else packages "$concurrent" "$alone" | of -race -timeout 40m; fi
}
integration() { packages "$alone" "$shown" | of -p 1 -timeout 20m; }
long() { "$work/longtests" "$@" test/longtests.txt || echo 1 >"$work/failed"; }
lint() { hack/lint.sh >&2 || echo 1 >"$work/failed"; }
# rest runs what core does not, side by side, as most of it waits for programs: the tests with the race detector at a lower priority.
rest() {
  spend hyperkube hyperkube
  hack/cluster.sh build
  (say long && spend long long -budget "${BUDGET:-10m}") >"$work/long.json" &
  (renice -n 5 "$BASHPID" >/dev/null && stage race) >"$work/race.json" &
  spend lint lint
  beside enforce
  stage unit
  stage integration
  wait
  after enforce.json race.json long.json
}

# listed prints what run would run, a package a line.
listed() {
  local flags=()
  while [[ $1 != "$module"/* ]]; do flags+=("$1") && shift; done
  printf '%s\n' "${@/#/${flags[*]} }"
}

starters >"$work/starters"
case $mode in
list)
  run() { listed "$@"; }
  for stage in layers quick hook plugins enforce unit race integration; do "$stage"; done
  exit
  ;;
core | rest) all() { "$mode"; } ;;
quick) all() { stage layers && stage quick && stage touched; } ;;
integration) all() { hyperkube && stage integration; } ;;
long) all() { hyperkube && hack/cluster.sh build && stage layers && say long && long ${1:+-only "$1"}; } ;;
race) all() { say race && race "$@"; } ;;
layers | unit) all() { stage "$mode"; } ;;
*)
  sed -n '2,/^#$/p' "$0" >&2
  exit 2
  ;;
esac

: >"$work/spent"
{
  all "$@"
  cat "$work/spent"
} | tee "${LOG:-/dev/null}" | "$work/testreport" -allowed hack/allowed-skips.txt
[ ! -e "$work/failed" ]
