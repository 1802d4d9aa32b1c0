#!/usr/bin/env bash
# scripts/sweep.sh and scripts/plot.py on tiny messages on this host.   sweep_test.sh <root> <folder of the tools>
# Exit code 77: what they need is not installed.
set -uo pipefail
root=$1 bin=$2
for needed in mpirun python3; do
  command -v "$needed" >/dev/null || { echo "skipped: there is no $needed"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work/points

fail() {
  printf 'FAILED: %s\n--- what was printed:\n%s\n' "$1" "$(cat "$work/printed")"
  exit 1
}
# expect <exit code> <pattern in what is printed> <command...>
expect() {
  local code=$1 pattern=$2 got=0
  shift 2
  "$@" >"$work/printed" 2>&1 || got=$?
  ((got == code)) || fail "exit code $got, expected $code: $*"
  grep -qE -- "$pattern" "$work/printed" || fail "no '$pattern': $*"
}
sweep() {
  local sizes=$1
  shift
  "$root/scripts/sweep.sh" --bin "$bin" --out "$out" --ranks 1,2 --sizes "$sizes" "$@" -- \
    --device host --threads 1 -n 1 -w 0 --sets 1
}

expect 2 "unknown argument '--nonesuch'" "$root/scripts/sweep.sh" --nonesuch
expect 2 'name a tool' "$root/scripts/sweep.sh"
expect 2 "cannot read the host file '/nonesuch'" "$root/scripts/sweep.sh" --hosts /nonesuch --bin "$bin" all_reduce_perf
expect 2 'there is no /nonesuch/moe_perf' "$root/scripts/sweep.sh" --bin /nonesuch moe_perf
expect 2 'modes is for moe_perf' "$root/scripts/sweep.sh" --bin "$bin" --modes tp all_reduce_perf
expect 2 'transports is for put_perf' "$root/scripts/sweep.sh" --bin "$bin" --transports ucx moe_perf
expect 2 'algorithms is for all_reduce_perf' "$root/scripts/sweep.sh" --bin "$bin" --algorithms push moe_perf
expect 0 "mpirun -np 2 $bin/moe_perf --tokens 8 --mode nvlink --json" "$root/scripts/sweep.sh" --bin "$bin" --out "$out" \
  --modes tp,nvlink --sizes 8 --dry-run moe_perf
printf 'node1 slots=8\nnode2 slots=8\n' >"$work/hosts"
expect 0 "mpirun --hostfile $work/hosts -np 16 $bin/moe_perf --tokens 8 --mode p2p --transport verbs --json" \
  "$root/scripts/sweep.sh" --bin "$bin" --out "$out" --hosts "$work/hosts" --ranks 16 --modes p2p --sizes 8 --dry-run moe_perf \
  -- --transport verbs
expect 0 "mpirun -np 2 $bin/put_perf --sizes 8 --transport verbs" "$root/scripts/sweep.sh" --bin "$bin" --out "$out" \
  --transports ucx,verbs --sizes 8 --dry-run put_perf
expect 0 "mpirun -np 2 $bin/all_reduce_perf --sizes 1K --algorithm automatic" sweep 1K --dry-run all_reduce_perf
[[ $(find "$out" -type f | wc -l) == 0 ]] || fail 'a dry run left files'

expect 0 '4 measured, 0 were there, 0 failed' sweep 64,1K all_reduce_perf
expect 0 '2 measured, 4 were there, 0 failed' sweep 64,1K,2K all_reduce_perf
expect 1 'failed .*2ranks-automatic-oops.*oops' sweep 64,oops all_reduce_perf
[[ ! -e $out/all_reduce_perf-2ranks-automatic-oops.json ]] || fail 'a failed point was kept'
expect 0 '4 measured, 0 were there' sweep 64,1K --again all_reduce_perf

expect 0 'automatic, bf16, 2 ranks on 1 node\(s\): 3 point\(s\)' "$root/scripts/plot.py" --text "$out"
expect 0 'bandwidth \(GB/s\) over size' "$root/scripts/plot.py" --text "$out/all_reduce_perf-2ranks-automatic-1K.json"
if python3 -c 'import matplotlib' 2>/dev/null; then
  expect 0 "drawn: $work/sweep.png" "$root/scripts/plot.py" -o "$work/sweep.png" "$out"
  [[ -s $work/sweep.png ]] || fail 'the picture is empty'
fi
echo '{"rows": [{"tool": "put_perf", "transport": "ucx", "ranks": 2, "nodes": 2, "size_bytes": 8, "latency_p50_us": 4,
  "bandwidth_gbps": 1}]}' >"$work/puts.json"
expect 0 'put, ucx, 2 ranks on 2 node\(s\): 1 point' "$root/scripts/plot.py" --text "$work/puts.json"
echo '{"rows": 3' >"$work/torn.json"
expect 1 'torn.json: not a result of a perf tool' "$root/scripts/plot.py" "$work/torn.json"
mkdir "$work/empty"
expect 1 'no rows in' "$root/scripts/plot.py" "$work/empty"
expect 2 'usage' "$root/scripts/plot.py"

out=$work/moe
expect 0 '2 measured, 0 were there, 0 failed' "$root/scripts/sweep.sh" --bin "$bin" --out "$out" --sizes 1,4 moe_perf -- \
  --device host --threads 1 --model olmoe --hidden 64 -n 1 -w 0 --sets 1
expect 0 'dispatch, custom, local, 1 rank\(s\): 2 point\(s\)' "$root/scripts/plot.py" --text "$out"
echo "all as expected"
