# Sourced by the scripts here. kind is run at one version, from its module. PROVIDER is the program that runs the nodes, docker or podman:
# the one that runs them already, else the first of them that works, unless KIND_EXPERIMENTAL_PROVIDER says it, which kind knows too.
KIND_VERSION=v0.33.0
KUBERNETES_VERSION=v1.37.1
PROVIDER=${KIND_EXPERIMENTAL_PROVIDER:-}
KEPT_PROVIDER=bin/kind/provider # up.sh writes it: without it, kind-down would look for the cluster where it is not

# Images take gigabytes, and debootstrap makes devices: /tmp is in memory on many machines, and admits none there.
export TMPDIR=${TMPDIR:-/var/tmp}

# What make kind-image makes. up.sh uses it where PULL=no.
LOCAL_NODE_IMAGE=localhost/gshare-kind-node:$KUBERNETES_VERSION

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

# need_provider sets PROVIDER, and says why none can be used.
need_provider() {
  local candidate
  if [ -n "$PROVIDER" ]; then
    need "$PROVIDER"
    "$PROVIDER" info >/dev/null || fail "cannot use $PROVIDER: start it, or become a user that may"
  else
    # shellcheck disable=SC2013 # one word, or none
    for candidate in $(cat "$KEPT_PROVIDER" 2>/dev/null) docker podman; do
      # Not podman under the name docker, by which kind cannot run nodes.
      if "$candidate" --version 2>/dev/null | grep -qi "^$candidate" && "$candidate" info >/dev/null 2>&1; then
        PROVIDER=$candidate
        break
      fi
    done
    [ -n "$PROVIDER" ] || fail "neither docker nor podman can be used: install one, start it, or become a user that may"
  fi
  export KIND_EXPERIMENTAL_PROVIDER=$PROVIDER
}

kind() { go run "sigs.k8s.io/kind@$KIND_VERSION" "$@"; }

# image DIR ENTRYPOINT ARCHIVE NAME...: writes an image with the files of a directory, as docker save does, with all of the names. ENTRYPOINT
# is JSON's list without its brackets.
image() {
  local dir=$1 entrypoint=$2 archive=$3 parts names
  shift 3
  names=$(printf '"%s",' "$@")
  parts=$(mktemp -d)
  tar -C "$dir" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf "$parts/layer.tar" .
  cat >"$parts/config.json" <<CONFIG
{"architecture": "$(go env GOARCH)", "os": "linux",
 "config": {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"], "Entrypoint": [$entrypoint]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$(sha256sum "$parts/layer.tar" | cut -d' ' -f1)"]}}
CONFIG
  echo "[{\"Config\": \"config.json\", \"RepoTags\": [${names%,}], \"Layers\": [\"layer.tar\"]}]" >"$parts/manifest.json"
  tar -C "$parts" -cf "$archive" config.json layer.tar manifest.json
  rm -r "$parts"
}
