#!/usr/bin/env bash
# build.sh DIR [FILE.c...]: builds the fake driver, with further sources where given, and the test programs into DIR, with gcc alone, or $CC.
set -euo pipefail
out=$(realpath -m "${1:?usage: build.sh DIR [FILE.c...]}") # before cd: arguments are relative to where the caller is
more=()
for source in "${@:2}"; do more+=("$(realpath "$source")"); done
cd "$(dirname "$0")"
mkdir -p "$out"
cc=${CC:-gcc}
old=GLIBC_2.2.5 # oldest version of dlsym
[[ $("$cc" -dumpmachine) != aarch64* ]] || old=GLIBC_2.17
flags="-std=gnu11 -O2 -g -fPIC -fvisibility=hidden -Wall -Wextra -Werror -pthread ${CFLAGS:-}"
driver=(account.c array.c capture.c contents.c context.c copy.c device.c entry.c event.c exec.c function.c graph.c image.c launch.c memory.c missing.c module.c mps.c pointer.c pool.c shared.c sim.c stream.c vmm.c)
# What a driver calls itself does not go to a library that is preloaded.
"$cc" $flags -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 -I. -o "$out/libcuda.so.1" "${driver[@]}" "${more[@]}"
"$cc" $flags -shared -Wl,-Bsymbolic -Wl,-soname,libnvidia-ml.so.1 -o "$out/libnvidia-ml.so.1" nvml.c account.c -ldl
"$cc" $flags -shared -Wl,-soname,libgshare_store.so -o "$out/libgshare_store.so" ../store/store.c ../store/map.c -ldl # before what uses it
for program in programs/*.c; do
	name=$(basename "$program" .c)
	link=(-L"$out" -l:libcuda.so.1)
	[[ $name == hold || $name == linked || $name == limits || $name == spin || $name == requests || $name == launches || $name == peers || $name == imports ]] || link=()
	[[ $name != weights ]] || link+=(-L"$out" -l:libcuda.so.1 -l:libgshare_store.so)
	"$cc" $flags -o "$out/$name" "$program" "${link[@]}" -ldl -lm
done
for driver in 535 550 615; do # MPS of drivers without the server for several users, and of one that has version 3
	mkdir -p "$out/r$driver"
	"$cc" $flags -DDRIVER=$driver -o "$out/r$driver/nvidia-cuda-mps-control" programs/nvidia-cuda-mps-control.c
done
for dir in "$out" "$out/r535" "$out/r550" "$out/r615"; do
	ln -f "$dir/nvidia-cuda-mps-control" "$dir/nvidia-cuda-mps-server" # one program, which reads its name from /proc/self/exe
done

# What the agent puts in front of MPS daemons.
"$cc" $flags -shared -o "$out/libgshare-mps.so" ../mps/guard.c

# The hook on the virtual clock: its sources with platform_virtual.c, linked with the fake driver for the clock.
sources=(../src/*.c)
sources=("${sources[@]/..\/src\/platform_linux.c/}")
echo "$old { }; GLIBC_2.34 { } $old;" >"$out/versions"
"$cc" $flags -I../include -I../src -shared -Wl,--version-script="$out/versions" -o "$out/libgshare-virtual.so" \
	${sources[@]} ../src/*.S -L"$out" -l:libcuda.so.1 -ldl
