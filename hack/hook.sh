#!/usr/bin/env bash
# Builds and checks the hook: hack/hook.sh build|check|test|bench [OUT], hack/hook.sh fuzz [SECONDS [OUT]]. OUT (default
# bin/hook) gets libgshare.so, libgshare-mps.so for MPS daemons, gshare-drain for preStop hooks, and libgshare_store.so and gshare_*.py for
# programs that share weights.
#
# build: this machine's library, and the aarch64 one if its cross compiler is installed
# cross: with CC as the third argument, the libraries for the machine that it compiles for
# check: exports, imports and versions of the libraries, no constructors, no cycle of more than two source files, one file that asks for contexts
# test:  the C tests plain, under AddressSanitizer and UBSan, ThreadSanitizer, valgrind and on aarch64, where these are installed
# bench: overhead of a launch, and its system calls
# fuzz:  each libFuzzer target for SECONDS (default 60), if clang is installed
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=60
[ "${1:-}" != fuzz ] || { seconds=${2:-60} && set -- fuzz "${3:-}"; }
out=${2:-bin/hook}
mkdir -p "$out"
out=$(cd "$out" && pwd)

warnings="-Wall -Wextra -Wshadow -Wstrict-prototypes -Wno-missing-field-initializers -Werror"
flags="-std=gnu11 -O2 -g -ffile-prefix-map=$PWD=gshare -fPIC -fvisibility=hidden -fno-semantic-interposition -fno-strict-aliasing -ftls-model=initial-exec $warnings"
link="-shared -Wl,-Bsymbolic -Wl,-z,relro -Wl,-soname,libgshare.so"

# Prints the linker's list of exports, from symbols.def. dlsym has both of its versions.
export_map() {
  local old=$1
  echo "$old { global: dlsym; dlvsym; local: *; };"
  echo "GLIBC_2.34 { global: dlsym; dlvsym; } $old;"
  echo "GSHARE_1 { global:"
  names | sed 's/.*/  &;/'
  echo "};"
}

# Prints the wrapped functions of symbols.def, one a line.
names() {
  {
    echo '#define CU(kind, by, name, ...) @name@'
    echo '#define CUP(kind, by, name, twin, ...) @name@ @name##_##twin@'
    echo '#define NVML(kind, name, ...) @name@'
    echo '#define USE(...)'
    echo '#include "hook/src/symbols.def"'
  } | gcc -E -P -I. -x c - | grep -o '@[A-Za-z0-9_]*@' | tr -d @ | sort
}

sources() { ls hook/src/*.c hook/src/*.S | grep -v platform_; }

# library CC FILE: builds the library. dlsym's oldest version depends on the machine; out-of-line atomics would add a constructor.
library() {
  local cc=$1 file=$2 old=GLIBC_2.2.5 machine=
  [[ $("$cc" -dumpmachine) != aarch64* ]] || { old=GLIBC_2.17 && machine=-mno-outline-atomics; }
  export_map "$old" >"$out/export.map"
  # shellcheck disable=SC2046,SC2086
  "$cc" $flags $machine $(sources) hook/src/platform_linux.c $link -Wl,--version-script="$out/export.map" -o "$file"
}

# shellcheck disable=SC2086
guard() { "$1" $flags -shared -Wl,-z,relro -Wl,-soname,libgshare-mps.so -o "$2" hook/mps/guard.c; }

# It is static, since containers may have any C library, or none.
# shellcheck disable=SC2086
drain() { "$1" $flags -static -s -o "$2" hook/drain/drain.c; }

# The store's library and its modules for Python. In older C libraries, dlopen and pthread_once are in libraries of their own.
store() {
  # shellcheck disable=SC2086
  "$1" $flags -shared -Wl,-z,relro -Wl,-soname,libgshare_store.so -o "$2" hook/store/store.c hook/store/map.c -Wl,--no-as-needed -l:libdl.so.2 -l:libpthread.so.0
  cp hook/store/gshare_store.py hook/store/gshare_safetensors.py "$(dirname "$2")/"
}

# cross CC: builds the libraries for the machine that a compiler compiles for.
cross() {
  library "$1" "$out/libgshare.so"
  guard "$1" "$out/libgshare-mps.so"
  drain "$1" "$out/gshare-drain"
  store "$1" "$out/libgshare_store.so"
}

build() {
  library gcc "$out/libgshare.so"
  guard gcc "$out/libgshare-mps.so"
  drain gcc "$out/gshare-drain"
  store gcc "$out/libgshare_store.so"
  if command -v aarch64-linux-gnu-gcc >/dev/null; then library aarch64-linux-gnu-gcc "$out/libgshare-aarch64.so"; fi
}

fail() {
  echo "hook: $*" >&2
  exit 1
}

# sanitized OUT KIND: builds the library with a sanitizer. It does not export dlsym, see hook/test/entry.c.
sanitized() {
  { echo "GSHARE_1 { global:"; names | sed 's/.*/  &;/'; echo "local: *; };"; } >"$out/export.map"
  # shellcheck disable=SC2046,SC2086
  gcc $flags -fsanitize="$1" $(sources | grep -v '[.]S$') hook/test/entry.c hook/src/platform_linux.c $link \
    -Wl,--version-script="$out/export.map" -o "$out/libgshare-sanitized.so"
}

check() {
  hack/hook-cycles.sh || fail "files of hook/src refer to each other in a cycle"
  ! grep -lE "CALL\((cuCtxGetCurrent|cuCtxGetDevice|cuStreamGetCtx)" hook/src/*.c | grep -v /device.c || fail "only gsh_target asks for contexts"
  [ -e "$out/libgshare.so" ] || build
  local lib
  check_age "$out/libgshare_store.so"
  for lib in "$out"/libgshare.so "$out"/libgshare-aarch64.so; do
    if [ -e "$lib" ]; then check_one "$lib"; fi
  done
}

# Fails if a library needs a newer C library than 2.17: containers may have an old one.
check_age() {
  nm -D --undefined-only "$1" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1 | {
    read -r newest
    [ "$(printf '%s\nGLIBC_2.17\n' "$newest" | sort -V | tail -1)" = GLIBC_2.17 ] || fail "$(basename "$1") needs $newest"
    echo "hook: $(basename "$1"): needs at most $newest"
  }
}

check_one() {
  local lib=$1 extra
  extra=$(diff <({ names; echo dlsym; echo dlvsym; } | sort) \
    <(nm -D --defined-only "$lib" | awk '$2 == "T" || $2 == "W" {print $3}' | sed 's/@.*//' | sort -u)) ||
    fail "exports differ from symbols.def: $extra"
  nm -D --undefined-only "$lib" | grep -wE '_?exit|_Exit|abort|quick_exit|sigaction|signal|printf|puts' &&
    fail "imports functions that could end or disturb the host process"
  # The thread sanitizer sees what such functions access, and not the locks of the hook (string.c). strsep and strtol read what one thread has.
  nm -D --undefined-only "$lib" | awk '{sub(/@.*/, "", $2); print $2}' | grep -E '^(__)?(mem|str|stp|bcmp|bcopy|bzero)' | grep -vwE 'strsep|strtol' &&
    fail "imports functions for bytes or strings, which sanitizers replace"
  [ "$(nm -D --defined-only "$lib" | grep -cE ' (dlsym|dlvsym)@@?GLIBC_2\.(34|17|2\.5)$')" = 4 ] || fail "dlsym and dlvsym lack a version"
  check_age "$lib"
  echo "hook: $(basename "$lib"): $(names | wc -l) wrapped functions"
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
cross) cross "$3" ;;
check) check ;;
names) names ;;
test | bench | fuzz) out=$out hack/hook-test.sh "$1" "$seconds" ;;
*) fail "usage: hack/hook.sh build|check|test|bench [OUT], or fuzz [SECONDS [OUT]]" ;;
esac
