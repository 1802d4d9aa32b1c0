#!/usr/bin/env bash
# Measures many points with mpirun, one JSON file each, and goes on where it stopped. Draw them with scripts/plot.py.
#
#   scripts/sweep.sh [options] all_reduce_perf|moe_perf|put_perf [-- flags of the tool...]
#
#   --hosts FILE        host file as mpirun takes it ("node1 slots=8"); default: this machine alone
#   --ranks LIST        numbers of ranks: 2,4,8             (default 2; moe_perf --modes local: 1)
#   --sizes LIST        bytes of a message, or tokens       (default 4K,64K,1M,16M; put_perf 8,4K,64K,1M;
#                       moe_perf 1,32,128,1024,4096)
#   --algorithms LIST   all_reduce_perf only: automatic,push,pack,stream,two_shot,nvls,nccl   (default automatic)
#   --modes LIST        moe_perf only: local,tp,nvlink,p2p  (default local)
#   --transports LIST   put_perf only: loopback,verbs,ucx   (default ucx; moe_perf takes one: -- --transport verbs)
#   --out FOLDER        where the points go                 (default build/results/sweep)
#   --bin FOLDER        where the tools are, on every host  (default build/bin)
#   --again             also measures the points that are there
#   --dry-run           prints the commands, runs nothing
#
# A point is known by tool, ranks, algorithm, mode or transport, and size alone: other flags of the tool go into another
# folder. It is kept if
# its run was good (exit code 0: nothing wrong); a failed one leaves <point>.log, and the sweep goes on. Rank 0 writes the
# file, so run this on the first host, or into a folder that the hosts share. $MPIRUN replaces "mpirun":
# MPIRUN="mpirun -x NCCL_DEBUG=WARN". Exit code: 0 all points are there, 1 some failed, 2 usage.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  printf 'sweep.sh: %s\n' "$*" >&2
  sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
  exit 2
}

hosts='' ranks='' sizes='' algorithms='' modes='' transports='' out=$root/build/results/sweep bin=$root/build/bin again=0 dry_run=0
tool='' tool_flags=()
while (($#)); do
  case $1 in
    --hosts | --ranks | --sizes | --algorithms | --modes | --transports | --out | --bin)
      (($# >= 2)) && [[ -n $2 ]] || usage "$1 needs a value"
      printf -v "${1#--}" '%s' "$2"
      shift 2 ;;
    --again) again=1; shift ;;
    --dry-run) dry_run=1; shift ;;
    --) shift; tool_flags=("$@"); break ;;
    all_reduce_perf | moe_perf | put_perf) tool=$1; shift ;;
    *) usage "unknown argument '$1'" ;;
  esac
done

[[ -z $algorithms || $tool == all_reduce_perf ]] || usage "--algorithms is for all_reduce_perf"
[[ -z $modes || $tool == moe_perf ]] || usage "--modes is for moe_perf"
[[ -z $transports || $tool == put_perf ]] || usage "--transports is for put_perf"
case $tool in
  all_reduce_perf)
    ranks=${ranks:-2} sizes=${sizes:-4K,64K,1M,16M} size_flag=--sizes
    variants=${algorithms:-automatic} variant_flag=--algorithm ;;
  moe_perf)
    variants=${modes:-local} variant_flag=--mode
    if [[ $variants == local ]]; then ranks=${ranks:-1}; else ranks=${ranks:-2}; fi
    sizes=${sizes:-1,32,128,1024,4096} size_flag=--tokens ;;
  put_perf)
    variants=${transports:-ucx} variant_flag=--transport
    ranks=${ranks:-2} sizes=${sizes:-8,4K,64K,1M} size_flag=--sizes ;;
  *) usage "name a tool: all_reduce_perf, moe_perf or put_perf" ;;
esac
[[ -z $hosts || -r $hosts ]] || usage "cannot read the host file '$hosts'"
[[ -x $bin/$tool ]] || usage "there is no $bin/$tool; build it, or name its folder with --bin"
[[ ! $ranks =~ [^0-9,] ]] || usage "--ranks '$ranks' is not a list of numbers"
read -ra mpirun <<<"${MPIRUN:-mpirun}"
command -v "${mpirun[0]}" >/dev/null || usage "there is no '${mpirun[0]}'; install an MPI (apt-get install openmpi-bin)"

# Open MPI refuses root, and more ranks than cores, unless told otherwise; other MPIs ignore these.
if ((EUID == 0)); then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
if [[ -z $hosts ]]; then export OMPI_MCA_rmaps_base_oversubscribe=1; fi

measured=0 kept=0 failed=0
measure() { # <ranks> <algorithm, mode or transport> <size>
  local point=$out/$tool-$1ranks-$2-$3
  local command=("${mpirun[@]}" ${hosts:+--hostfile "$hosts"} -np "$1" "$bin/$tool" "$size_flag" "$3" "$variant_flag" "$2")
  command+=("${tool_flags[@]}" --json "$point.partial")
  if ((dry_run)); then
    printf '%q ' "${command[@]}" && echo
  elif [[ -e $point.json ]] && ((!again)); then
    kept=$((kept + 1))
  elif "${command[@]}" >"$point.log" 2>&1 </dev/null; then
    mv "$point.partial" "$point.json" && rm "$point.log"
    measured=$((measured + 1))
    echo "measured ${point##*/}"
  else
    rm -f "$point.partial"
    failed=$((failed + 1))
    echo "failed   ${point##*/}: $(grep -m 1 "^$tool: " "$point.log" || head -n 1 "$point.log") ($point.log)" >&2
  fi
}

mkdir -p "$out"
IFS=, read -ra rank_list <<<"$ranks"
IFS=, read -ra variant_list <<<"$variants"
IFS=, read -ra size_list <<<"$sizes"
for num_ranks in "${rank_list[@]}"; do
  for variant in "${variant_list[@]}"; do
    for size in "${size_list[@]}"; do
      measure "$num_ranks" "$variant" "$size"
    done
  done
done
if ((!dry_run)); then
  echo "$measured measured, $kept were there, $failed failed; in $out (draw them: scripts/plot.py $out)"
fi
exit $((failed > 0))
