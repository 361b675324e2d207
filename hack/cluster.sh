#!/usr/bin/env bash
# The programs of the test cluster: hack/cluster.sh build brings bin/cluster up to date, hack/cluster.sh hyperkube the one program
# that tests of an API server need. Go's build cache makes that a matter of seconds when nothing has changed.
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/compile-env.sh
out=$PWD/bin/cluster
mkdir -p "$out"

# Tests of several packages may run this at the same time. One of the packages imports "plugin", for which Go would use the system's linker; its
# own does, too, and takes less time.
hyperkube() {
  local version
  exec {lock}>"$out/.lock"
  flock "$lock"
  version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes) # nodes and servers report it
  "${compile[@]}" go build -ldflags="-s -w -linkmode=internal -X k8s.io/component-base/version.gitVersion=$version" -o "$out/hyperkube" ./test/controlplane/hyperkube
  exec {lock}>&-
}

build() {
  hyperkube
  # A module of its own: what containerd requires is not gshare's business.
  CGO_ENABLED=0 "${compile[@]}" go build -C test/cluster/containerd -ldflags='-s -w' -o "$out/" tool
  gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -static -s -o "$out/init" test/cluster/machine/init/init.c
}

case ${1:-} in
build | hyperkube) "$1" ;;
*)
  echo "usage: hack/cluster.sh build|hyperkube" >&2
  exit 2
  ;;
esac
