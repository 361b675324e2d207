#!/usr/bin/env bash
# build.sh OUT [CFLAGS...]: builds the hook's C tests with gcc, or $CC, into OUT, where the hook and the fake driver already are.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1
shift
cc=${CC:-gcc}
flags="-std=gnu11 -O1 -g -Wall -Wextra -Wno-missing-field-initializers -Wno-unused-function -Werror -pthread $*"

# The unit tests. The sources of the hook are linked in, so that sanitizers instrument all of them.
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
for source in $(ls hook/src/*.c | grep -v platform_) hook/test/model.c hook/test/entry.c hook/test/server.c; do
  "$cc" $flags -c "$source" -o "$objects/$(basename "$source" .c).o"
done
mkdir "$objects/server" && mv "$objects/server.o" "$objects/server/"
for unit in interval_test parse_test ledger_test budget_test reap_test pace_test image_test; do
  "$cc" $flags -o "$out/$unit" "hook/test/$unit.c" "$objects"/*.o
done

# Programs that run under the library.
for program in gate_test blocks_test memory_test store_test no_server_test inherit_test paths_test refused_test peers_test seccomp_test innocent_test hostile_test races_test; do
  "$cc" $flags -o "$out/$program" "hook/test/$program.c" "$objects/server/server.o" -L"$out" -l:libcuda.so.1
done
"$cc" $flags -o "$out/bench" hook/test/bench.c "$objects/server/server.o" "$objects/libc.o" -L"$out" -l:libcuda.so.1 -ldl
"$cc" $flags -o "$out/route_test" hook/test/route_test.c "$objects/libc.o" -ldl
"$cc" $flags -shared -fPIC -o "$out/other.so" hook/test/other.c
"$cc" $flags -shared -fPIC -o "$out/interposer.so" hook/test/interposer.c -ldl
