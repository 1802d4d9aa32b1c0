#!/usr/bin/env bash
# Sets the machine up, builds, and measures local dispatch and combine on real model shapes; every value is checked.
# On a GPU where there is one, else on the host. Arguments are handed on to moe_perf (`--help` lists them).
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

models=(qwen3-30b-a3b deepseek-v3 gpt-oss-120b)
install_missing "$needs_of_build"
build default moe_perf

results=$root/build/results
mkdir -p "$results"
for model in "${models[@]}"; do
  say "$model"
  build/bin/moe_perf --mode local --device auto --model "$model" --tokens 1,8,64,512,4096 --routing uniform \
    --reference naive --json "$results/$model.json" "$@"
done
say "Done: every value was checked. The rows are in ${results#"$root"/}/*.json; docs/performance.md explains the columns."
