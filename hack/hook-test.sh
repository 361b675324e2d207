#!/usr/bin/env bash
# hook-test.sh test|bench, called by hook.sh with out set. See there.
set -euo pipefail
out=${out:?call hack/hook.sh}
export GSHARE_DIR=/nonexistent OTHER=$out/other.so LD_LIBRARY_PATH=$out
failed=0

under() { # under NAME COMMAND...: one run, with its name when it fails
  local name=$1
  shift
  echo "== $name"
  "$@" || { echo "FAILED: $name"; failed=1; }
}

alone() { # the runs without a server
  under "alone, closed" env LD_PRELOAD="$hook" "$out/alone_test"
  mkdir -p "$out/policy"
  printf 'version 1\nvgpu 0 none memory 104857600 quota 300 sm 1000\n' >"$out/policy/policy"
  under "alone, policy" env POLICY=1 GSHARE_DIR="$out/policy" LD_PRELOAD="$hook" "$out/alone_test"
}

everything() { # the parts and the programs
  hook=$out/libgshare.so
  for part in interval_test parse_test ledger_test settle_test; do under "$part" "$out/$part"; done
  for program in route_test gate_test memory_test; do under "$program" env LD_PRELOAD="$hook" "$out/$program"; done
  alone
}

test_all() {
  hook/fake/build.sh "$out"
  hack/hook.sh build "$out"
  hack/hook.sh check "$out"
  hook/test/build.sh "$out"
  everything

  # The driver's own bookkeeping is not freed at the end, so leaks are not looked for.
  export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 OPERATIONS=100000
  echo "=== AddressSanitizer and UBSan"
  sanitized address,undefined "$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
  echo "=== ThreadSanitizer"
  TSAN_OPTIONS="halt_on_error=1" sanitized thread "$(gcc -print-file-name=libtsan.so)"
  if command -v valgrind >/dev/null; then
    echo "=== valgrind"
    hook/test/build.sh "$out"
    for part in interval_test ledger_test settle_test; do
      under "valgrind $part" valgrind -q --error-exitcode=9 "$out/$part"
    done
    under "valgrind route_test" valgrind -q --error-exitcode=9 env LD_PRELOAD="$hook" "$out/route_test"
  fi
}

# sanitized KIND RUNTIME: the same tests, hook and tests built with a sanitizer. Look-ups are not tested so.
sanitized() {
  hook/test/build.sh "$out" "-fsanitize=$1"
  hack/hook.sh sanitized "$out" "$1"
  for part in interval_test parse_test ledger_test settle_test; do under "$part" "$out/$part"; done
  for program in gate_test memory_test; do
    under "$program" env LD_PRELOAD="$2 $out/libgshare-sanitized.so" "$out/$program"
  done
}

# How much slower a launch is under the hook, and what the launching thread asks of the kernel meanwhile.
bench() {
  hook/fake/build.sh "$out"
  hack/hook.sh build "$out"
  hook/test/build.sh "$out"
  for round in 1 2 3; do
    echo "without  $("$out/bench" 15)"
    echo "with     $(LD_PRELOAD=$out/libgshare.so "$out/bench" 15)"
  done
  if command -v strace >/dev/null; then
    rm -f "$out"/trace.*
    LD_LIBRARY_PATH= strace -ff -o "$out/trace" env LD_LIBRARY_PATH="$out" LD_PRELOAD="$out/libgshare.so" "$out/bench" count
    for trace in "$out"/trace.*; do
      awk '/^syncfs\(-1\)/ {on = 1; next} /^syncfs\(-2\)/ {print "system calls of the launching thread in 1,000,000 launches:", n + 0; on = 0} on {n++; print > "/dev/stderr"}' "$trace"
    done
  fi
}

case $1 in
test) test_all ;;
bench) bench ;;
esac
exit "$failed"
