#!/usr/bin/env bash
# hook-cycles.sh: fails if more than two files of hook/src form a cycle of references. A file refers to another if it uses a function or variable
# that the other defines. It reads the symbols of freshly compiled objects with nm; hook.sh check calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
for source in hook/src/*.c hook/src/*.S; do
  [[ $source == *platform_virtual.c ]] || gcc -std=gnu11 -fPIC -fno-inline -c "$source" -o "$objects/$(basename "${source%.*}").o"
done
# nm -A -g prints FILE:[ADDRESS] TYPE SYMBOL. The files that reach each other by any path form one cycle.
nm -A -g "$objects"/*.o | awk '
  { file = $1; sub(/:.*/, "", file); sub(/.*\//, "", file); sub(/\.o$/, "", file); symbol = $NF; sub(/@.*/, "", symbol) }
  $(NF - 1) == "U" { uses[file, symbol] = 1; next }
  { definer[symbol] = file; if (!(file in files)) total++; files[file] = 1 }
  END {
    for (u in uses) { split(u, p, SUBSEP); d = definer[p[2]]; if (d != "" && d != p[1]) reach[p[1], d] = 1 }
    for (k in files) for (i in files) if ((i, k) in reach) for (j in files) if ((k, j) in reach) reach[i, j] = 1
    for (i in files) {
      n = 1; cycle = i; first = 1
      for (j in files) if (j != i && (i, j) in reach && (j, i) in reach) { n++; cycle = cycle " " j; if (j < i) first = 0 }
      if (n > 2 && first) { print "hook: cycle of " n " files: " cycle > "/dev/stderr"; bad = 1 }
    }
    if (!bad) print "hook: no cycle of more than two among " total " files"
    exit bad
  }'
