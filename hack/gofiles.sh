#!/usr/bin/env bash
# Prints every Go file of the checkout, committed or not, that git does not ignore. Works without git as well.
set -euo pipefail
cd "$(dirname "$0")/.."
if git rev-parse --git-dir >/dev/null 2>&1; then
  git ls-files --cached --others --exclude-standard -- '*.go' | sort -u | while read -r file; do
    if [ -f "$file" ]; then echo "$file"; fi # deleted but not yet committed
  done
else
  find . -name '*.go' -not -path './.*' -not -path './bin/*' | sort
fi
