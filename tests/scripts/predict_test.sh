#!/usr/bin/env bash
# scripts/predict.py against published tables, and its rows against what moe_perf counts.  predict_test.sh <root> <tools>
# Exit code 77: what it needs is not installed.
set -uo pipefail
root=$1 bin=$2
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  printf 'FAILED: %s\n--- what was printed:\n%s\n' "$1" "$(cat "$work/printed")"
  exit 1
}
predict() { "$root/scripts/predict.py" "$@" >"$work/printed" 2>&1; }

predict --check || fail 'the model is off'
grep -qE '64 +combine +309 .*predicted' "$work/printed" || fail 'what was not fitted is not compared'

# The bytes of the busiest of four ranks are a little more than the mean's: one row of 128 bytes for each remote rank.
"$bin/moe_perf" --mode nvlink --ranks 4 --device host --threads 1 --model qwen3-30b-a3b --hidden 64 --tokens 1024 -n 1 -w 0 \
  -c 0 --sets 1 --json "$work/moe.json" >"$work/printed" 2>&1 || fail moe_perf
counted=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["rows"][0]["wire_bytes"] / 128)' "$work/moe.json")
predict --ranks 4 --ranks-per-node 1 --tokens 1024 --experts 128 --topk 8 || fail 'a prediction'
awk -v counted="$counted" '$1 == 4 { good = $2 > 0.97 * counted && $2 <= counted } END { exit !good }' "$work/printed" ||
  fail "moe_perf counted $counted rows"

# Inside a node nothing crosses; beyond it the numbers of put_perf are taken.
"$bin/put_perf" --ranks 2 --transport loopback --sizes 8,64K -n 50 --json "$work/puts.json" >"$work/printed" 2>&1 || fail put_perf
predict --puts "$work/puts.json" --ranks 8,16 --inside 10,20 || fail 'a prediction from put_perf'
awk '$1 == 8 { inside = $3 == 10 && $4 == 20 } $1 == 16 { more = $3 > 10 && $4 > 20 } END { exit !(inside && more) }' \
  "$work/printed" || fail 'times inside a node, or beyond'
predict --puts /nonesuch && fail 'a file that is not there'
echo "all as expected"
