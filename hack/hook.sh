#!/usr/bin/env bash
# Builds and checks the hook: hack/hook.sh build|check|test|bench [OUT]. OUT (default bin/hook) gets libgshare.so.
#
# build: this machine's library, and the aarch64 one if its cross compiler is there
# check: exports, imports and versions of the library, and that it has no constructors
# test:  the C tests under AddressSanitizer and UBSan, ThreadSanitizer, valgrind where they are there
# bench: what the hook adds to a launch, and its system calls
set -euo pipefail
cd "$(dirname "$0")/.."
out=${2:-bin/hook}
mkdir -p "$out"
out=$(cd "$out" && pwd)

warnings="-Wall -Wextra -Wshadow -Wstrict-prototypes -Wno-missing-field-initializers -Werror"
flags="-std=gnu11 -O2 -g -fPIC -fvisibility=hidden -fno-semantic-interposition -fno-strict-aliasing -ftls-model=initial-exec $warnings"
link="-shared -Wl,-Bsymbolic -Wl,-z,relro -Wl,-soname,libgshare.so"

# The linker's list of exports, made from the one list of symbols. dlsym has both of its versions.
export_map() {
  local old=$1
  echo "$old { global: dlsym; dlvsym; local: *; };"
  echo "GLIBC_2.34 { global: dlsym; dlvsym; } $old;"
  echo "GSHARE_1 { global:"
  names | sed 's/.*/  &;/'
  echo "};"
}

# Every wrapped function of symbols.def, one a line.
names() {
  {
    echo '#define CU(kind, name, ...) @name@'
    echo '#define CUP(kind, name, twin, ...) @name@ @name##_##twin@'
    echo '#define NVML(kind, name, ...) @name@'
    echo '#define USE(...)'
    echo '#include "hook/src/symbols.def"'
  } | gcc -E -P -I. -x c - | grep -o '@[A-Za-z0-9_]*@' | tr -d @ | sort
}

sources() { ls hook/src/*.c hook/src/*.S | grep -v platform_; }

# library CC PLATFORM OLD_NODE FILE [FLAGS]
library() {
  local cc=$1 platform=$2 old=$3 file=$4
  shift 4
  export_map "$old" >"$out/export.map"
  # shellcheck disable=SC2046,SC2086
  "$cc" $flags "$@" $(sources) "$platform" $link -Wl,--version-script="$out/export.map" -o "$file"
}

build() {
  library gcc hook/src/platform_linux.c GLIBC_2.2.5 "$out/libgshare.so"
  if command -v aarch64-linux-gnu-gcc >/dev/null; then
    library aarch64-linux-gnu-gcc hook/src/platform_linux.c GLIBC_2.17 "$out/libgshare-aarch64.so"
  fi
}

fail() {
  echo "hook: $*" >&2
  exit 1
}

# The library under a sanitizer: sanitized OUT KIND. It does not export dlsym, see hook/test/entry.c.
sanitized() {
  { echo "GSHARE_1 { global:"; names | sed 's/.*/  &;/'; echo "local: *; };"; } >"$out/export.map"
  # shellcheck disable=SC2046,SC2086
  gcc $flags -fsanitize="$1" $(sources | grep -v '[.]S$') hook/test/entry.c hook/src/platform_linux.c $link \
    -Wl,--version-script="$out/export.map" -o "$out/libgshare-sanitized.so"
}

check() {
  local lib=$out/libgshare.so extra
  [ -e "$lib" ] || build
  extra=$(diff <({ names; echo dlsym; echo dlvsym; } | sort) \
    <(nm -D --defined-only "$lib" | awk '$2 == "T" || $2 == "W" {print $3}' | sed 's/@.*//' | sort -u)) ||
    fail "exports differ from symbols.def: $extra"
  nm -D --undefined-only "$lib" | grep -wE '_?exit|_Exit|abort|quick_exit|sigaction|signal|printf|puts' &&
    fail "imports what could end or disturb its host"
  nm -D --undefined-only "$lib" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1 | {
    read -r newest
    [ "$(printf '%s\nGLIBC_2.17\n' "$newest" | sort -V | tail -1)" = GLIBC_2.17 ] || fail "needs $newest"
    echo "hook: $(names | wc -l) wrapped functions, needs at most $newest"
  }
  readelf -SW "$lib" | grep -q '\.ctors' && fail "has constructors"
  # .init_array holds the compiler's frame_dummy and nothing else
  [ "$(readelf -SW "$lib" | awk '$2 == ".init_array" || $3 == ".init_array" {print 1}' | wc -l)" -le 1 ] || fail "init arrays"
  local size
  size=$(readelf -SW "$lib" | grep -o ' \.init_array .*' | awk '{print $5}')
  [ "$((16#${size:-0}))" -le 8 ] || fail "has constructors: .init_array of $size"
}

case ${1:-build} in
build) build ;;
sanitized) sanitized "$3" ;;
check) check ;;
names) names ;;
test | bench) out=$out hack/hook-test.sh "$1" ;;
*) fail "usage: hack/hook.sh build|check|test|bench [OUT]" ;;
esac
