#!/usr/bin/env bash
# Formats every source file with clang-format 14; --check only says which would change, and fails if any would.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tool=$(command -v clang-format-14 || command -v clang-format || true)
if [[ -z $tool ]] || ! "$tool" --version | grep -q 'version 14\.'; then
  echo "error: clang-format 14 is needed (other versions format differently): apt-get install clang-format-14" >&2
  exit 1
fi
mode=(-i)
if [[ ${1-} == --check ]]; then
  mode=(--dry-run --Werror)
elif (($# > 0)); then
  echo "usage: scripts/format.sh [--check]" >&2
  exit 2
fi
git ls-files -z '*.cpp' '*.hpp' '*.cuh' '*.cu' | xargs -0 -r "$tool" "${mode[@]}"
