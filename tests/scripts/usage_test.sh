#!/usr/bin/env bash
# Scripts refuse arguments that they do not know, before they install or build anything.   usage_test.sh <root>
set -uo pipefail
root=$1

# expect <exit code> <pattern in what is printed> <script> <arguments...>
expect() {
  local code=$1 pattern=$2 script=$3 printed got=0
  shift 3
  printed=$(timeout 20 "$root/scripts/$script" "$@" 2>&1) || got=$?
  if ((got != code)) || ! grep -qE -- "$pattern" <<<"$printed"; then
    printf 'FAILED: %s\nexit code %s, expected %s and "%s"; printed:\n%s\n' "$script $*" "$got" "$code" "$pattern" "$printed"
    exit 1
  fi
}

expect 2 "'--nonesuch' is no preset" test.sh --nonesuch
expect 2 "'nonesuch' is no preset" test.sh default nonesuch
expect 2 'scripts/test.sh \[preset...\]' test.sh -v
expect 0 'scripts/test.sh \[preset...\]' test.sh --help
expect 2 "unknown flag '--nonesuch'" lint.sh --nonesuch
expect 2 "there is no file 'nonesuch.cpp'" lint.sh nonesuch.cpp
expect 2 "'README.md' is no .cpp file" lint.sh README.md
expect 0 'scripts/lint.sh \[file.cpp...\]' lint.sh --help
expect 2 'usage: scripts/format.sh' format.sh --nonesuch
expect 0 'scripts/demo.sh \[flags of moelink-generate...\]' demo.sh --help
expect 2 "unknown argument '--nonesuch'" test-hosts.sh --nonesuch
expect 2 "unknown argument '--nonesuch'" test-verbs-vm.sh --nonesuch
expect 2 '--bin needs a path that exists' test-verbs-vm.sh --bin /nonesuch
expect 2 "is no number of microseconds" test-hosts.sh --delay 1ms
expect 2 'there is no /nonesuch/put_perf' test-hosts.sh --bin /nonesuch
