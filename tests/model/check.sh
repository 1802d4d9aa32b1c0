#!/usr/bin/env bash
# Model-checks a protocol: "nvlink", the flow control of the nvlink mode, or "pump", the warps of a block that moves
# rows. It must hold, and each protocol with a rule left out must not. Leaves with 77 (skipped) where there is no spin.
set -euo pipefail

protocol=${1:?nvlink or pump}
model="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/$protocol.pml"
command -v spin >/dev/null || { echo "skipped: no spin (apt install spin)"; exit 77; }
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# The states of three ranks take 2.8 GB. Where that is not to be had, they are compressed, which takes 1.5 times as long.
compress=$(awk '/^MemAvailable:/ && $2 < 6000000 { print "-DCOLLAPSE" }' /proc/meminfo)

# explore <what> <spin defines>...: prints what spin says; its verdict is in $errors.
explore() {
  local what="$1"
  shift
  spin "$@" -a "$model" >spin.log
  "${CC:-cc}" -O3 ${compress:+"$compress"} -DSAFETY -DNOFAIR -DNOBOUNDCHECK -DVECTORSZ=256 -w -o pan pan.c
  ./pan -n -m100000 -w25 >pan.log
  if grep -q "max search depth too small" pan.log; then
    echo "$what: the search was cut short"
    exit 1
  fi
  errors="$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log)"
  echo "$what: ${errors:-no verdict} error(s), $(sed -n 's/^ *\([0-9]*\) states, stored/\1/p' pan.log) states"
}
must_hold() {
  explore "$@"
  [[ $errors == 0 ]] || { cat pan.log; exit 1; }
}
must_break() {
  explore "$@"
  [[ $errors == 1 ]] || { echo "the model does not see what it is there to see"; exit 1; }
}

check_nvlink() {
  must_hold "2 ranks, 3 epochs" -DRANKS=2 -DEPOCHS=3
  must_hold "2 ranks, 3 epochs, send and receive apart" -DRANKS=2 -DEPOCHS=3 -DSPLIT
  must_hold "3 ranks, 2 epochs, one sometimes without tokens" -DRANKS=3 -DEPOCHS=2 -DFIRST_WITH_TOKENS=1
  for rule in NO_COMBINE_HEADER SILENT_WITHOUT_TOKENS EARLY_LAUNCH; do
    must_break "3 ranks, $rule" -DRANKS=3 -DEPOCHS=2 "-D$rule"
  done
}

check_pump() {
  local quantizes=(-DSENDERS=1 -DQUANTIZERS=1 -DRAW=3 -DTOTAL=3)
  must_hold "2 senders, 4 batches" -DSENDERS=2 -DTOTAL=4
  must_hold "1 sender, 1 quantizer, 3 batches" "${quantizes[@]}"
  for rule in NO_STAGE_SENT SKIPPING FLAG_AT_ONCE; do
    must_break "2 senders, $rule" -DSENDERS=2 -DTOTAL=3 "-D$rule"
  done
  must_break "1 sender, 1 quantizer, UNQUANTIZED" "${quantizes[@]}" -DUNQUANTIZED
}

"check_$protocol"
