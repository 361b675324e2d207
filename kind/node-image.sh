#!/usr/bin/env bash
# Makes a node image for kind where images cannot be pulled: make kind-image. Its base are packages of Debian; Kubernetes, CoreDNS, containerd
# and kind's own files are built or taken from Go modules. It needs root, debootstrap, Go and gcc, docker or podman, and the network
# unless packages and modules are there already. APT and Go find their mirrors as usual: http_proxy, GOPROXY.
set -euo pipefail
cd "$(dirname "$0")/.."
source kind/tools.sh
source hack/compile-env.sh

need go gcc tar
need_provider
[ "$(id -u)" = 0 ] || fail "debootstrap needs root"
out=$PWD/bin/kind
mkdir -p "$out"
work=$(mktemp -d)
containerd=
# Nothing that is still mounted or running below it is removed with it.
finish() {
  if [ -n "$containerd" ]; then kill "$containerd" 2>/dev/null && wait "$containerd" || true; fi
  rm -rf --one-file-system "$work"
}
trap finish EXIT

# programs builds what runs on the nodes. Kubernetes has the versions and the flags of hack/cluster.sh, whose packages then need not be
# compiled again; that the C library is linked in is the linker's business.
programs() {
  local static='-s -w -linkmode external -extldflags "-static -Wl,--no-warnings"' kubernetes
  echo "kind: build Kubernetes $KUBERNETES_VERSION, CoreDNS and containerd"
  "${compile[@]}" go build -C test/controlplane/kubernetes -ldflags="$static -X k8s.io/component-base/version.gitVersion=$KUBERNETES_VERSION" -o "$out/kubernetes" .
  "${compile[@]}" go build -C test/controlplane/coredns -ldflags="$static" -o "$out/coredns" .
  CGO_ENABLED=0 "${compile[@]}" go build -C test/cluster/containerd -ldflags='-s -w' -o "$out/" tool
  kubernetes=$(go list -C test/controlplane/kubernetes -m -f '{{.Dir}}' k8s.io/kubernetes)
  gcc -Os -Wall -static -s -o "$out/pause" "$kubernetes/build/pause/linux/pause.c"
}

# The last Debian whose systemd starts on a machine with cgroup v1.
suite=bookworm
packages=systemd,systemd-sysv,dbus,conntrack,iptables,nftables,iproute2,ethtool,mount,kmod,e2fsprogs,ca-certificates,curl,jq,procps,hostname
packages=$packages,libseccomp2,runc,containernetworking-plugins,busybox-static

# base unpacks Debian into a directory. The archive is kept, since packages take a minute or two.
base() {
  local root=$1 archive=$out/debian-$suite.tar
  mkdir -p "$root"
  if ! [ -e "$archive" ]; then
    need debootstrap
    echo "kind: fetch packages of Debian $suite"
    debootstrap --variant=minbase --include="$packages" "$suite" "$work/debian" >"$work/debootstrap.log" || fail "debootstrap: $(tail "$work/debootstrap.log")"
    rm -rf "$work"/debian/var/cache/apt/archives/*.deb "$work"/debian/var/lib/apt/lists/* "$work"/debian/usr/share/doc/*/changelog*
    tar -C "$work/debian" --exclude=./dev/* -cf "$archive.part" .
    mv "$archive.part" "$archive"
    rm -rf --one-file-system "$work/debian"
  fi
  tar -C "$root" -xf "$archive"
}

# install_kind does with a root directory what the Dockerfile of kind's base image does.
install_kind() {
  local root=$1 files unit
  files=$(go mod download -json "sigs.k8s.io/kind@$KIND_VERSION" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')/images/base/files
  cp -r --no-preserve=mode,ownership "$files/." "$root/"
  chmod 755 "$root/usr/local/bin/entrypoint" "$root"/kind/bin/*
  rm -f "$root"/lib/systemd/system/{multi-user,local-fs,basic}.target.wants/* "$root"/etc/systemd/system/*.wants/* \
    "$root"/lib/systemd/system/sockets.target.wants/*{udev,initctl}* "$root"/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service
  echo "ReadKMsg=no" >>"$root/etc/systemd/journald.conf"
  for unit in kubelet containerd undo-mount-hacks; do chroot "$root" systemctl --quiet enable "$unit"; done
  chroot "$root" systemctl --quiet mask systemd-binfmt.service
  # A container cannot lower what keeps its processes from being killed where its own creator could not.
  sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$root/etc/containerd/config.toml"
  "$out/ctr" oci spec >"$work/spec.json" 2>"$work/spec.log"
  chroot "$root" jq '.hooks.createContainer += [{"path": "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' \
    <"$work/spec.json" >"$root/etc/containerd/cri-base.json"
}

# install_programs puts programs and manifests where kind looks for them.
install_programs() {
  local root=$1 name
  install "$out/containerd" "$out/containerd-shim-runc-v2" "$out/ctr" "$root/usr/local/bin/"
  install "$out/kubernetes" "$root/usr/bin/"
  for name in kubeadm kubelet kubectl; do ln -s kubernetes "$root/usr/bin/$name"; done
  mkdir -p "$root/opt/cni/bin" "$root/etc/kubernetes/manifests" "$root/kind/manifests"
  for name in host-local loopback ptp portmap; do ln -s "/usr/lib/cni/$name" "$root/opt/cni/bin/$name"; done
  printf %s "$KUBERNETES_VERSION" >"$root/kind/version"
  sed "s/KUBERNETES_VERSION/$KUBERNETES_VERSION/" kind/podroutes.yaml >"$root/kind/manifests/default-cni.yaml"
  cat >"$root/kind/manifests/default-storage.yaml" <<STORAGE
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: standard
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: kubernetes.io/host-path
STORAGE
}

# network_tools copies what kube-proxy runs from a root directory of Debian.
network_tools() {
  local root=$1 dir=$2 name
  chroot "$root" dpkg-query --listfiles iptables nftables conntrack iproute2 libc6 libxtables12 libnftables1 libnftnl11 libmnl0 libip4tc2 libip6tc2 \
    libnetfilter-conntrack3 libnfnetlink0 libjansson4 libgmp10 libedit2 libtinfo6 libbsd0 libmd0 libcap2 libbpf1 libelf1 zlib1g libselinux1 libpcre2-8-0 |
    grep -E '^/(usr/)?(s?bin|lib|lib64)/' | grep -v -e /gconv/ -e /systemd/ | sort -u | while read -r name; do
    if ! [ -d "$root$name" ] || [ -L "$root$name" ]; then echo ".$name"; fi
  done >"$work/tools"
  tar -C "$root" --files-from="$work/tools" -c | tar -C "$dir" -x
  for name in iptables ip6tables; do
    ln -sf xtables-nft-multi "$dir/usr/sbin/$name"
    ln -sf xtables-nft-multi "$dir/usr/sbin/$name-save"
    ln -sf xtables-nft-multi "$dir/usr/sbin/$name-restore"
  done
}

# system_images writes the images of the pods of the cluster's system, under the names by which kubeadm and containerd ask for them.
system_images() {
  local root=$1 name names pause
  ln -sf kubernetes "$out/kubeadm"
  names=$("$out/kubeadm" config images list --kubernetes-version "$KUBERNETES_VERSION")
  pause=$(sed -n 's/.*sandbox_image = "\(.*\)"/\1/p' "$root/etc/containerd/config.toml")

  mkdir -p "$work"/images "$work"/kubernetes/{usr/local/bin,tmp} "$work"/{coredns,pause,busybox/bin}
  network_tools "$root" "$work/kubernetes"
  install "$out/kubernetes" "$work/kubernetes/usr/local/bin/"
  for name in etcd kube-apiserver kube-controller-manager kube-proxy kube-scheduler podroutes; do
    ln -s kubernetes "$work/kubernetes/usr/local/bin/$name"
  done
  # shellcheck disable=SC2046 # a name has no blanks
  image "$work/kubernetes" "" "$work/images/kubernetes.tar" "localhost/kubernetes:$KUBERNETES_VERSION" $(grep -v -e /coredns: -e /pause: <<<"$names")
  install "$out/coredns" "$work/coredns/"
  image "$work/coredns" '"/coredns"' "$work/images/coredns.tar" "$(grep /coredns: <<<"$names")"
  install "$out/pause" "$work/pause/"
  image "$work/pause" '"/pause"' "$work/images/pause.tar" "$pause"
  install "$root/bin/busybox" "$work/busybox/bin/"
  "$root/bin/busybox" --list | grep -vx busybox | while read -r name; do ln -s busybox "$work/busybox/bin/$name"; done
  image "$work/busybox" "" "$work/images/busybox.tar" docker.io/library/busybox:1.37 # Debian's, under the name that demo.yaml has
}

# import_images puts the images where the containerd of a root directory will find them. It unpacks them when it first needs them.
import_images() {
  local root=$1 archive
  cat >"$work/containerd.toml" <<CONFIG
version = 3
root = "$root/var/lib/containerd"
state = "$work/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
[grpc]
  address = "$work/containerd.sock"
CONFIG
  "$out/containerd" --config "$work/containerd.toml" >"$work/containerd.log" 2>&1 &
  containerd=$!
  for _ in $(seq 100); do
    if [ -S "$work/containerd.sock" ]; then break; fi
    sleep 0.2
  done
  for archive in "$work"/images/*.tar; do
    "$out/ctr" --address "$work/containerd.sock" --namespace=k8s.io images import --no-unpack --label=io.cri-containerd.pinned=pinned "$archive" >>"$work/containerd.log" 2>&1 ||
      fail "containerd: $(tail -3 "$work/containerd.log")"
  done
  kill "$containerd"
  wait "$containerd" || true
  containerd=
}

programs
base "$work/root"
install_kind "$work/root"
install_programs "$work/root"
system_images "$work/root"
import_images "$work/root"
echo "kind: import the image"
tar -C "$work/root" -c . | "$PROVIDER" import --change 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]' \
  --change 'ENV container=docker' - "$LOCAL_NODE_IMAGE" >/dev/null
echo "kind: made $LOCAL_NODE_IMAGE"
