#!/usr/bin/env bash
# Makes a release from this checkout, without a registry and without Docker: VERSION=v0.1.0 hack/release.sh [OUT]. OUT (default
# bin/release/VERSION) gets images, manifests, the Helm chart, archives, a bill of materials, the provenance and checksums. The same commit
# gives the same bytes on a machine with the same compilers.
#
# REGISTRY=registry.example/team names the images after the registry that they will be pushed to; by default they have no registry, and
# nodes import them.
# ARCHES="amd64 arm64" (default): another architecture than this machine's gets all programs but the agent, which needs a C compiler for it.
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/compile-env.sh
source hack/c-library.sh
version=${VERSION:-}
if ! [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
  echo "release: VERSION=${version:-} is not of the form v0.1.0" >&2
  exit 2
fi
if [ -n "$(git status --porcelain)" ]; then
  echo "release: the checkout has changes that are not committed" >&2
  git status --short >&2
  exit 1
fi
out=${1:-bin/release/$version}
out=${out%/} # without a slash, so that $out.part is beside it
programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT
commit=$(git rev-parse HEAD)
ldflags="-s -w -X github.com/gshare-dev/gshare/cmd/internal/release.version=$version"
host=$(go env GOHOSTARCH)

# compiler ARCH: the C compiler for an architecture; nothing if there is none.
compiler() {
  local triple
  case $1 in
  amd64) triple=x86_64-linux-gnu ;;
  arm64) triple=aarch64-linux-gnu ;;
  esac
  if [ "$1" = "$host" ]; then echo gcc; else command -v $triple-gcc || true; fi
}

for arch in ${ARCHES:-amd64 arm64}; do
  dir=$programs/linux_$arch
  mkdir -p "$dir"
  echo "release: build for $arch"
  GOOS=linux GOARCH=$arch CGO_ENABLED=0 "${compile[@]}" go build -trimpath -ldflags="$ldflags" -o "$dir/" \
    ./cmd/gshare ./cmd/gshare-scheduler ./cmd/gshare-controller ./cmd/gshare-gateway
  cc=$(compiler "$arch")
  if [ -z "$cc" ]; then
    echo "release: no agent for $arch: there is no C compiler for it"
    continue
  fi
  GOOS=linux GOARCH=$arch CGO_ENABLED=1 CC=$cc CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations" "${compile[@]}" go build -trimpath -ldflags="$ldflags" -o "$dir/" ./cmd/gshare-node
  if [ "$arch" = "$host" ]; then
    hack/hook.sh build "$dir/hook"
    cp "$dir/hook/libgshare.so" "$dir/hook/libgshare-mps.so" "$dir/hook/gshare-drain" "$dir/hook/libgshare_store.so" "$dir"/hook/gshare_*.py "$dir/"
  else
    hack/hook.sh cross "$dir" "$cc"
  fi
  library "$cc" "$dir/root"
done

for platform in darwin/amd64 darwin/arm64 windows/amd64; do # the kubectl plugin
  echo "release: build kubectl-gshare for $platform"
  dir=$programs/${platform/\//_}
  mkdir -p "$dir"
  GOOS=${platform%/*} GOARCH=${platform#*/} CGO_ENABLED=0 "${compile[@]}" go build -trimpath -ldflags="$ldflags" -o "$dir/" ./cmd/gshare
done

rm -rf "$out" "$out.part"
root=$PWD
mkdir -p "$out.part" # so that a folder with the name of a release is always complete
part=$(cd "$out.part" && pwd)
(cd hack/release && go run . --version "$version" --commit "$commit" --time "$(git log -1 --format=%ct)" --registry "${REGISTRY:-}" \
  --programs "$programs" --root "$root" --out "$part")
(cd "$part" && sha256sum --check --quiet SHA256SUMS)
mv -T "$part" "$out" # -T fails, rather than move into a folder that another run has made
echo "release: wrote ${out#"$root"/}"
