#!/usr/bin/env bash
# hook-test.sh test|bench|fuzz SECONDS: called by hook.sh, with the output folder in $out.
set -euo pipefail
out=${out:?call hack/hook.sh}
export GSHARE_DIR=/nonexistent OTHER=$out/other.so LD_LIBRARY_PATH=$out
failed=0

under() { # under NAME COMMAND...: one run; prints its name, and again when it fails
  local name=$1
  shift
  echo "== $name"
  "$@" || { echo "FAILED: $name"; failed=1; }
}

emulator=
preloaded() { # preloaded LIBRARY PROGRAM [ARGUMENT]: on this machine or an emulated one
  if [ -n "$emulator" ]; then $emulator -E LD_PRELOAD="$1" "${@:2}"; else env LD_PRELOAD="$1" "${@:2}"; fi
}

units() { # units FOLDER: the unit tests
  for unit in interval_test parse_test ledger_test budget_test reap_test pace_test image_test; do under "$unit" $emulator "$1/$unit"; done
}

no_server() { # no_server FOLDER: the runs without a token server
  under "no server, no policy" preloaded "$1/libgshare.so" "$1/no_server_test"
  mkdir -p "$1/policy"
  printf 'version 1\nvgpu 0 none memory 104857600 quota 300 sm 1000\n' >"$1/policy/policy"
  : >"$1/policy/processes-1"
  POLICY=1 GSHARE_DIR=$1/policy under "no server, policy" preloaded "$1/libgshare.so" "$1/no_server_test"
}

# Tests the library for aarch64 under an emulator. Tests that execute another program are left out, because the emulator does not follow them.
aarch64() {
  local dir=$out/aarch64 cc=aarch64-linux-gnu-gcc
  command -v $cc >/dev/null && command -v qemu-aarch64 >/dev/null || { echo "hook: no aarch64 compiler or emulator"; return; }
  CC=$cc hook/fake/build.sh "$dir"
  CC=$cc hook/test/build.sh "$dir"
  cp "$out/libgshare-aarch64.so" "$dir/libgshare.so"
  local emulator="qemu-aarch64 -L /usr/aarch64-linux-gnu" LD_LIBRARY_PATH=$dir OTHER=$dir/other.so OPERATIONS=20000 FAKE_CUDA_DEVICES=2
  export FAKE_CUDA_DEVICES OPERATIONS
  units "$dir"
  for program in route_test gate_test blocks_test paths_test "memory_test random_operations_do_not_drift"; do
    # shellcheck disable=SC2086
    under "$program" preloaded "$dir/libgshare.so" "$dir/"$program
  done
  no_server "$dir"
  for preload in "$dir/libgshare.so:$dir/interposer.so" "$dir/interposer.so:$dir/libgshare.so"; do
    under "interposers $preload" refused preloaded "$preload" "$dir/opened"
  done
}

refused() { # the program ran up to its allocation, which the hook refuses where there is no policy
  ! "$@" >"$out/refused" && grep -q allocate "$out/refused"
}

test_all() {
  hook/fake/build.sh "$out"
  hack/hook.sh build "$out"
  hack/hook.sh check "$out"
  hook/test/build.sh "$out"
  local hook=$out/libgshare.so
  units "$out"
  for program in route_test gate_test blocks_test memory_test paths_test refused_test peers_test inherit_test; do under "$program" preloaded "$hook" "$out/$program"; done
  no_server "$out"
  echo "=== aarch64"
  (aarch64 && exit $failed) || failed=1

  # The fake driver does not free its memory at exit, so leaks are not detected.
  export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 OPERATIONS=100000
  echo "=== AddressSanitizer and UBSan"
  sanitized address,undefined "$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
  echo "=== ThreadSanitizer"
  TSAN_OPTIONS="halt_on_error=1" sanitized thread "$(gcc -print-file-name=libtsan.so)"
  if command -v valgrind >/dev/null; then
    echo "=== valgrind"
    hook/test/build.sh "$out"
    for unit in interval_test ledger_test budget_test reap_test pace_test image_test; do
      under "valgrind $unit" valgrind -q --error-exitcode=9 "$out/$unit"
    done
    LD_PRELOAD=$hook under "valgrind route_test" valgrind -q --error-exitcode=9 "$out/route_test"
  fi
}

# sanitized KIND RUNTIME: the same tests with a sanitizer, except those of symbol lookups, because that build does not export dlsym.
sanitized() {
  hook/test/build.sh "$out" "-fsanitize=$1"
  hack/hook.sh sanitized "$out" "$1"
  units "$out"
  for program in gate_test blocks_test memory_test paths_test refused_test peers_test inherit_test; do
    under "$program" preloaded "$2 $out/libgshare-sanitized.so" "$out/$program"
  done
}

# Measures the overhead of a launch under the hook, and counts the system calls of the launching thread.
bench() {
  hook/fake/build.sh "$out"
  hack/hook.sh build "$out"
  hook/test/build.sh "$out"
  for round in 1 2 3; do
    echo "without  $("$out/bench" 15)"
    echo "with     $(LD_PRELOAD=$out/libgshare.so "$out/bench" 15)"
    echo "blocks   $(LD_PRELOAD=$out/libgshare.so "$out/bench" 15 blocks)"
  done
  if command -v strace >/dev/null; then
    rm -f "$out"/trace.*
    for tokens in time blocks; do
      LD_LIBRARY_PATH= strace -ff -o "$out/trace" env LD_LIBRARY_PATH="$out" LD_PRELOAD="$out/libgshare.so" "$out/bench" count $tokens
    done
    for trace in "$out"/trace.*; do
      awk '/^syncfs\(-1\)/ {on = 1; next} /^syncfs\(-2\)/ {print "system calls of the launching thread in 1,000,000 launches:", n + 0; on = 0} on {n++; print > "/dev/stderr"}' "$trace"
    done
  fi
}

# Runs one target after the other with sanitizers. An input that fails is kept in the target's corpus folder.
fuzz() {
  local clang seeds=$out/seeds
  clang=$(compgen -c clang | grep -xE "clang(-[0-9]+)?" | sort -uV | tail -1) || { echo "hook: clang is not installed, nothing fuzzed"; return; }
  "$clang" --version | head -1
  mkdir -p "$seeds"
  seed_corpus
  for target in policy welcome session; do
    # shellcheck disable=SC2046
    "$clang" -std=gnu11 -O1 -g -fno-strict-aliasing -pthread -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
      $(ls hook/src/*.c | grep -v platform_) hook/src/platform_linux.c hook/test/entry.c "hook/test/fuzz/$target.c" -o "$out/fuzz_$target"
    mkdir -p "$out/corpus_$target"
    under "fuzz $target" nice "$out/fuzz_$target" -max_total_time="$1" -max_len=4200 -timeout=20 -rss_limit_mb=1024 -verbosity=0 \
      -print_final_stats=1 -artifact_prefix="$out/corpus_$target/" "$out/corpus_$target" "$seeds/$target"
  done
}

seed_corpus() { # one valid input for each target
  local frame=vgpu/api/tokenwire/testdata/welcome.frame
  mkdir -p "$seeds"/{policy,welcome,session}
  printf 'version 1\nvgpu 0 GPU-1 memory 1048576 quota 300 sm 500\n' >"$seeds/policy/file"
  printf 'vgpu 0 GPU-1 memory 1048576 quota 300 sm 500' >"$seeds/policy/line"
  cp "$frame" "$seeds/welcome/frame"
  tail -c +33 "$frame" >"$seeds/welcome/body"
  # six descriptors, their kinds, the contents of a page, the body
  { printf '\6\7\6\6\7\6\6'; head -c 128 /dev/zero; printf '\0\0\0\100\0\0\0\0'; head -c 120 /dev/zero; tail -c +33 "$frame"; } >"$seeds/session/answer"
}

case $1 in
test) test_all ;;
bench) bench ;;
fuzz) fuzz "$2" ;;
esac
exit "$failed"
