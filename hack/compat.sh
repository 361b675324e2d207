#!/usr/bin/env bash
# Installs gshare in real clusters of each version of Kubernetes that it supports, and tests in each the first pod, a burst, the death of the
# agent, an upgrade and the removal: hack/compat.sh [VERSION...], such as 1.36. It reports for each version and part whether it passed, and fails
# if any did not. It needs root. hack/compat.sh build VERSION... only compiles, which takes a quarter of an hour or more for each version on 2
# cores. GSHARE_KUBELET_FEATURES=PodsAPI turns on that feature gate in kubelets. On 1.35, gshare is installed twice: with the policy that sets
# defaults, in v1beta1, and without it.
set -uo pipefail
cd "$(dirname "$0")/.."
source hack/compile-env.sh
logs=$PWD/bin/compat
results=()

# module prints the module file of a version, in test/controlplane/compat.
module() { if [ "$1" = 1.36 ]; then echo go.mod; else echo "v$1.mod"; fi; }

# build compiles the programs of one version into bin/compat/VERSION. For the version that gshare is built with, hyperkube has them.
build() {
  local release file
  [ "$1" = 1.37 ] && return
  file=$(module "$1")
  mkdir -p "bin/compat/$1"
  release=$(go list -C test/controlplane/compat -modfile="$file" -m -f '{{.Version}}' k8s.io/kubernetes) &&
    "${compile[@]}" go build -C test/controlplane/compat -modfile="$file" -ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$release" \
      -o "$PWD/bin/compat/$1/kubernetes" .
}

# part runs tests of the cluster with one version, and keeps their output in bin/compat/VERSION.
part() {
  local version=$1 name=$2 pattern=$3 log began=$SECONDS result=passed
  log=$logs/$version/${name// /-}.log
  mkdir -p "$logs/$version"
  env -u GSHARE_KUBERNETES "${settings[@]}" go test -vet=off -count=1 -v -timeout 40m -run "$pattern" ./test/cluster >"$log" 2>&1 || result=FAILED
  grep -q '^--- PASS' "$log" || result=FAILED # nothing ran, or it was skipped
  results+=("$version  $name: $result, $((SECONDS - began)) s  ($log)")
  printf '%s\n' "${results[-1]}"
  [ $result = passed ]
}

run() {
  local version=$1 status=0
  build "$version" || { results+=("$version  build: FAILED") && return 1; }
  settings=()
  [ "$version" = 1.37 ] || settings=(GSHARE_KUBERNETES="$logs/$version/kubernetes")
  part "$version" "install, first pod, upgrade, uninstall" '^TestInstall$' || status=1
  if [ "$version" = 1.35 ]; then
    export GSHARE_APISERVER_FLAGS="--feature-gates=MutatingAdmissionPolicy=true --runtime-config=admissionregistration.k8s.io/v1beta1=true"
    part "$version" "the same with v1beta1" '^TestInstall$' || status=1
    unset GSHARE_APISERVER_FLAGS
  fi
  part "$version" "burst" '^TestAgentHundred$' || status=1
  part "$version" "agent killed" '^TestAgentRestarts$/^agent$' || status=1
  return $status
}

action=run
if [ "${1:-}" = build ]; then action=build && shift; fi
[ $# -gt 0 ] || set -- 1.37 1.36 1.35
status=0
for version; do "$action" "$version" || status=1; done
printf '\n'
printf '%s\n' "${results[@]}"
exit $status
