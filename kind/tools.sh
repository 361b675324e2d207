# Sourced by the scripts here. kind is run at one version, from its module; a node image of your own goes into NODE_IMAGE.
KIND_VERSION=v0.33.0
NODE_IMAGE=${NODE_IMAGE:-kindest/node:v1.37.1}

fail() {
  echo "kind: $*" >&2
  exit 1
}

need() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || fail "$tool is not installed; see kind/README.md for the prerequisites"
  done
}

kind() { go run "sigs.k8s.io/kind@$KIND_VERSION" "$@"; }
