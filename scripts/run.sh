#!/usr/bin/env bash
# Sets the machine up, builds, and measures local dispatch and combine on real model shapes; every value is checked.
# On a GPU where there is one, else on the host.
#   scripts/run.sh [flags of moe_perf...]    `--help` lists them; one that moe_perf does not know is refused, exit code 2
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

install_missing "$needs_of_build"
build default moe_perf

results=$root/build/results
mkdir -p "$results"
say "Measuring: three models, 1 to 4096 tokens"
build/bin/moe_perf --mode local --device auto --model qwen3-30b-a3b,deepseek-v3,gpt-oss-120b --routing uniform \
  --reference naive --json "$results/moe_perf.json" "$@"
say "Done: every value was checked. The rows are in ${results#"$root"/}/moe_perf.json; docs/performance.md explains the columns."
