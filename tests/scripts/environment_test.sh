#!/usr/bin/env bash
# Tools name the variable that is wrong, not the flag that it stands for.   environment_test.sh <bin>
set -uo pipefail
bin=$1

# expect <variable=value> <tool and flags...>
expect() {
  local setting=$1 printed code=0
  shift
  printed=$(timeout 20 env "$setting" "$bin/$1" "${@:2}" 2>&1 >/dev/null) || code=$?
  if ((code == 0)) || [[ $printed != *"$setting"* ]] || grep -qE -- '--(threads|ranks-per-node|transport)\b|::transport' <<<"$printed"; then
    printf 'FAILED: %s %s\nexit code %s; printed:\n%s\n' "$setting" "$*" "$code" "$printed"
    exit 1
  fi
}

puts=(--mode p2p --ranks 2 --ranks-per-node 1 --device host --tokens 1 --hidden 64 --experts 4 --topk 1 -n 1 -w 0)
for value in nonsense -1 5000; do
  expect MOELINK_HOST_THREADS=$value moe_perf --tokens 1
  expect MOELINK_RANKS_PER_NODE=$value moe_perf --mode p2p --ranks 2 --tokens 1
  expect MOELINK_HOST_THREADS=$value all_reduce_perf
done
expect MOELINK_PACK=0 all_reduce_perf --ranks 2 --device host --algorithm pack --sizes 1K
expect MOELINK_DEADLINE=soon moe_perf --ranks 2 --mode nvlink --device host --tokens 1
expect MOELINK_PUT=pigeon moe_perf "${puts[@]}"
expect MOELINK_PUT=pigeon put_perf --ranks 2
