#!/usr/bin/env bash
# Fetches NVIDIA's user space for the tests against it and runs them: hack/nvidia.sh [fetch [FOLDER...]]. No GPU is needed.
#
# fetch unpacks the packages of hack/nvidia.txt, all or those of the named folders, from Debian's non-free suites into $GSHARE_NVIDIA (default:
# the user's cache), outside of the system and of the repository. It names what it cannot get, and the tests that need it are then skipped. The
# packages come from the Debian mirror in apt's configuration, or from $DEBIAN_MIRROR.
#
# Without an argument: fetch, then all tests of test/nvidia, and as root those of the MPS daemons on a real kubelet.
set -euo pipefail
cd "$(dirname "$0")/.."
export GSHARE_NVIDIA=${GSHARE_NVIDIA:-${XDG_CACHE_HOME:-$HOME/.cache}/gshare/nvidia}
table=hack/nvidia.txt
keys=/usr/share/keyrings/debian-archive-keyring.gpg

# rows FOLDER prints the lines of the table for a folder.
rows() { awk -v folder="$1" '$1 == folder' "$table"; }

# present FOLDER reports whether a folder holds what the table says.
present() { [ "$(cat "$GSHARE_NVIDIA/$1/versions" 2>/dev/null)" = "$(rows "$1")" ]; }

# apt COMMAND ARGUMENT... runs an apt program with a state of its own in $work, and no package sources but those of the table.
apt() {
  local command=$1
  shift
  "$command" -q -o Dir::Etc::sourcelist="$work/sources" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/lists" \
    -o Dir::State::status=/dev/null -o Dir::Cache="$work" -o APT::Sandbox::User= -o Acquire::Languages=none "$@"
}

# prepare reads the indexes of the suites. It fails with the reason.
prepare() {
  local tool mirror
  for tool in apt-get dpkg-deb sha256sum; do
    command -v "$tool" >/dev/null || { echo "$tool is not installed" && return 1; }
  done
  [ "$(dpkg --print-architecture)" = amd64 ] || { echo "the packages are for amd64" && return 1; }
  [ -e "$keys" ] || { echo "no $keys" && return 1; }
  mirror=${DEBIAN_MIRROR:-$(apt-get update --print-uris 2>/dev/null | sed -n "s|^'\(.*/debian/\)dists/.*|\1|p" | sed -n 1p)}
  [ -n "$mirror" ] || { echo "apt's configuration names no Debian mirror: set DEBIAN_MIRROR" && return 1; }
  mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/debs"
  awk -v source="deb [signed-by=$keys] $mirror" '!/^#/ {print source, $2, $3}' "$table" | sort -u >"$work/sources"
  apt apt-get update >"$work/update.log" 2>&1 || true # the log names a suite that failed; the others can be used
}

# download SUITE PACKAGE VERSION SHA256 leaves the package at $work/debs/PACKAGE.deb. It fails with the reason.
download() {
  local suite=$1 package=$2 version=$3 sum=$4 there
  rm -f "$work"/debs/*
  (cd "$work/debs" && apt apt-get download "$package=$version" >"$work/log" 2>&1 && mv ./*.deb "$package.deb") || {
    there=$(apt apt-cache madison "$package" 2>/dev/null | awk -F '|' -v s="$suite/" 'index($3, " " s) {gsub(/ /, "", $2); print $2; exit}')
    echo "$package $version is not to be had; $suite has ${there:-none}: $(grep -hm 1 '^[EW]:' "$work/update.log" "$work/log" | sed -n 1p)"
    return 1
  }
  echo "$sum  $work/debs/$package.deb" | sha256sum --check --status || {
    echo "$package $version is not the file that $table names by its sha256"
    return 1
  }
}

# unpack PACKAGE DIR unpacks $work/debs/PACKAGE.deb. Of CUDA's development files it takes only the headers, which come first in the archive: the
# static libraries that follow have gigabytes.
unpack() {
  if [ "$1" != nvidia-cuda-dev ]; then
    dpkg-deb -x "$work/debs/$1.deb" "$2"
    return
  fi
  { dpkg-deb --fsys-tarfile "$work/debs/$1.deb" 2>/dev/null || true; } | head -c 64M | tar -x -C "$2" --wildcards './usr/include/*' 2>/dev/null || true
  [ -e "$2/usr/include/vector_types.h" ] || { echo "no headers in $1" && return 1; }
}

# fill FOLDER fetches one folder. It fails with the reason.
fill() {
  local folder=$1 new=$work/new suite package version sum
  rm -rf "$new"
  mkdir -p "$new"
  while read -r _ suite _ package version sum; do
    download "$suite" "$package" "$version" "$sum" && unpack "$package" "$new" || return 1
  done < <(rows "$folder")
  if [[ $folder =~ ^[0-9]+$ ]]; then # a driver branch: its programs and libraries get the same names in all branches
    mkdir "$new/bin" "$new/lib"
    find "$new/usr" -type f -name 'nvidia-cuda-mps-*' -perm /111 -exec mv -t "$new/bin" {} +
    find "$new/usr" -name 'lib*.so*' -exec mv -t "$new/lib" {} +
    rm -rf "${new:?}/usr" "$new/var" "$new/etc"
    [ -x "$new/bin/nvidia-cuda-mps-server" ] && [ -e "$new/lib/libcuda.so.1" ] && [ -e "$new/lib/libnvidia-ml.so.1" ] || {
      echo "the packages lack a program or library" && return 1
    }
  fi
  rows "$folder" >"$new/versions"
  rm -rf "${GSHARE_NVIDIA:?}/$folder"
  mkdir -p "$GSHARE_NVIDIA"
  mv "$new" "$GSHARE_NVIDIA/$folder"
}

# fetch fetches the folders that are missing and reports on each. It fails if any is still missing at the end.
fetch() {
  local folder reason ready='' status=0
  for folder; do
    if present "$folder"; then
      echo "nvidia: $folder: present in $GSHARE_NVIDIA/$folder"
      continue
    fi
    [ -n "$ready" ] || { reason=$(prepare) && ready=yes || ready=no; }
    if [ "$ready" = yes ] && reason=$(fill "$folder"); then
      echo "nvidia: $folder: fetched into $GSHARE_NVIDIA/$folder"
    else
      echo "nvidia: $folder: NOT TO BE HAD, its tests are skipped: $reason" >&2
      status=1
    fi
  done
  return "$status"
}

mapfile -t folders < <(awk '!/^#/ {print $1}' "$table" | sort -u)
mode=${1:-}
case $mode in
fetch)
  shift
  [ "$#" -eq 0 ] || folders=("$@")
  for folder in "${folders[@]}"; do
    [ -n "$(rows "$folder")" ] || { echo "nvidia: $table has no folder $folder" >&2 && exit 2; }
  done
  ;;
'') ;;
*) echo "usage: hack/nvidia.sh [fetch [FOLDER...]]" >&2 && exit 2 ;;
esac

work=$(mktemp -d "${TMPDIR:-/tmp}/gshare-nvidia.XXXXXX")
trap 'rm -rf "$work"' EXIT
status=0
fetch "${folders[@]}" || status=1
[ "$mode" != fetch ] || exit "$status"
go test -count=1 -v ./test/nvidia
if [ "$(id -u)" -eq 0 ]; then
  hack/cluster.sh build
  go test -count=1 -v -run '^TestNVIDIA$' ./test/cluster
else
  echo "nvidia: the MPS daemons on a real kubelet NEED ROOT, their test is not run" >&2
fi
exit "$status"
