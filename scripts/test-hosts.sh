#!/usr/bin/env bash
# Several hosts on one machine: runs the tools between network namespaces that are joined by Ethernet, over UCX and tcp.
#
#   scripts/test-hosts.sh [options] [test...]        (default: every test)
#
#   puts        put_perf between two hosts of two ranks, as fast as the kernel is
#   delay       the same with DELAY more on every way: it must be seen, and change no byte
#   exchange    moe_perf --mode p2p, two hosts of two ranks, DELAY more on every way
#   single      the same on three hosts of one rank, without a delay
#   link-down   the link of a running exchange goes down: an error on every rank that names one of the other host
#
#   --bin FOLDER   where the tools are                    (default build/bin)
#   --delay US     of the tests that add one              (default 500)
#
# Needs root, ip, and namespaces that are permitted; a delay comes from tc netem, or, where the kernel lacks it, from
# scripts/delayed_switch.py. Exit code: 0 all good, 1 something failed, 2 usage, 77 nothing could run here (skipped).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  printf 'test-hosts.sh: %s\n' "$*" >&2
  sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
  exit 2
}

bin=$root/build/bin delay_us=500 tests=()
while (($#)); do
  case $1 in
    --bin | --delay)
      (($# >= 2)) && [[ -n $2 ]] || usage "$1 needs a value"
      if [[ $1 == --bin ]]; then bin=$2; else delay_us=$2; fi
      shift 2 ;;
    puts | delay | exchange | single | link-down) tests+=("$1"); shift ;;
    *) usage "unknown argument '$1'" ;;
  esac
done
[[ $delay_us =~ ^[0-9]+$ ]] || usage "--delay '$delay_us' is no number of microseconds"
((${#tests[@]})) || tests=(puts delay exchange single link-down)
[[ -x $bin/put_perf ]] || usage "there is no $bin/put_perf; build it, or name its folder with --bin"

skip() { echo "skipped: $*" && exit 77; }
((EUID == 0)) || skip "network namespaces need root"
command -v ip >/dev/null || skip "there is no ip (apt-get install iproute2)"

name=mlh$$ # of everything that is made: namespaces <name>0, <name>1, ... and <name>sw, interfaces alike
work=$(mktemp -d)
num_hosts=0
switch_pid=''
pids=()
deadline_s=15
remove_hosts() {
  if [[ -n $switch_pid ]]; then kill "$switch_pid" 2>/dev/null || true; fi
  switch_pid=''
  local host
  for ((host = 0; host < num_hosts; ++host)); do ip netns del "$name$host" 2>/dev/null || true; done
  ip netns del "${name}sw" 2>/dev/null || true
  num_hosts=0
}
trap 'remove_hosts; rm -rf "$work"' EXIT

# Hosts 0 .. <number> - 1: host h has the address 10.79.0.<h + 1> on interface <name>h.
make_hosts() { # <number> <microseconds of delay>
  remove_hosts
  local host
  for ((host = 0; host < $1; ++host)); do
    ip netns add "$name$host" 2>/dev/null || skip "network namespaces are not permitted (ip netns add failed)"
    num_hosts=$((host + 1))
  done
  if (($2 == 0)) || ip netns exec "${name}0" tc qdisc add dev lo root netem delay 1us 2>/dev/null; then
    join_by_bridge "$@"
  else
    join_by_user_space "$@"
  fi
  for ((host = 0; host < $1; ++host)); do
    ip -n "$name$host" link set lo up
    ip -n "$name$host" addr add "10.79.0.$((host + 1))/24" dev "$name$host"
    ip -n "$name$host" link set "$name$host" up
  done
}
join_by_bridge() {
  local host
  { ip netns add "${name}sw" && ip -n "${name}sw" link add "$name" type bridge && ip -n "${name}sw" link set "$name" up; } \
    2>/dev/null || skip "virtual switches are not permitted (ip link add ... type bridge failed)"
  for ((host = 0; host < $1; ++host)); do
    ip -n "${name}sw" link add "port$host" type veth peer name "$name$host" netns "$name$host"
    ip -n "${name}sw" link set "port$host" master "$name" up
    if (($2)); then ip netns exec "$name$host" tc qdisc add dev "$name$host" root netem delay "$2us"; fi
  done
  link_words=veth
  if (($2)); then link_words="veth, $2 us more by netem"; fi
}
join_by_user_space() {
  local host interfaces=()
  for ((host = 0; host < $1; ++host)); do interfaces+=("$name$host"); done
  command -v python3 >/dev/null || skip "a delay needs a kernel with netem, or python3"
  python3 "$root/scripts/delayed_switch.py" "$2" "${interfaces[@]}" >"$work/switch" 2>&1 &
  switch_pid=$!
  local waited=0
  until grep -q ready "$work/switch"; do
    kill -0 "$switch_pid" 2>/dev/null && ((++waited < 100)) ||
      skip "a delay needs a kernel with netem, or /dev/net/tun: $(tail -n 1 "$work/switch")"
    sleep 0.05
  done
  for ((host = 0; host < $1; ++host)); do ip link set "$name$host" netns "$name$host"; done
  link_words="TAP, $2 us more by a switch in user space"
}

# Starts rank r on the r-th host of the list, for at most a minute. What it prints is in $work/rank<r>.
start_ranks() { # "<host> <host> ..." <command...>
  local hosts rank
  read -ra hosts <<<"$1"
  shift
  pids=()
  for rank in "${!hosts[@]}"; do
    local host=${hosts[$rank]}
    ip netns exec "$name$host" env RANK="$rank" WORLD_SIZE="${#hosts[@]}" MASTER_ADDR=10.79.0.1 MASTER_PORT=29500 \
      MOELINK_NODE="host$host" MOELINK_DEADLINE="$deadline_s" UCX_TLS=tcp UCX_NET_DEVICES="$name$host" \
      timeout 60 "$@" >"$work/rank$rank" 2>&1 </dev/null &
    pids+=($!)
  done
}
# Waits for all of them, which have to succeed.
run_ranks() {
  local rank failed=0
  start_ranks "$@"
  for rank in "${!pids[@]}"; do
    wait "${pids[$rank]}" || { failed=1 && printf -- '--- rank %s failed:\n%s\n' "$rank" "$(cat "$work/rank$rank")"; }
  done
  return "$failed"
}

fail() { echo "FAILED: $*" && exit 1; }

# Pairs of ranks are those of put_perf, 0 and 1, 2 and 3: each between the two hosts.
measure_puts() {
  run_ranks '0 1 0 1' "$bin/put_perf" --transport ucx --sizes 8,4K,256K -n 30 -w 5 -c 2 ||
    fail 'put_perf between two hosts'
  cat "$work/rank0"
  grep -q 'on 2 node(s)' "$work/rank0" || fail 'ranks of two hosts took them for one'
}
test_puts() {
  make_hosts 2 0
  measure_puts
}
test_delay() {
  make_hosts 2 "$delay_us"
  measure_puts
  awk -v least="$delay_us" '
    /^#/ { next }
    { rows++ }
    $3 < least { print "half a round trip of " $3 " us, where the way alone takes " least " us"; bad = 1 }
    END { exit bad || !rows }' "$work/rank0" || fail 'the delay is not seen'
}

# Experts of a small model between the hosts, by puts, and inside a host by loads and stores.
exchange() { # "<host> <host> ..." <number of nodes> <flags...>
  local hosts=$1 nodes=$2
  shift 2
  run_ranks "$hosts" "$bin/moe_perf" --mode p2p --transport ucx --device host --threads 1 --model qwen3-30b-a3b -n 3 -w 1 \
    --sets 2 "$@" || fail 'moe_perf --mode p2p'
  cat "$work/rank0"
  grep -q "on $nodes node(s)" "$work/rank0" || fail 'ranks of several hosts took them for others'
}
test_exchange() {
  make_hosts 2 "$delay_us"
  exchange '0 0 1 1' 2 --tokens 0,1,64
}
test_single() {
  make_hosts 3 0
  exchange '0 1 2' 3 --tokens-per-rank 33,0,5
}
test_link_down() {
  deadline_s=4
  make_hosts 2 0
  start_ranks '0 0 1 1' "$bin/moe_perf" --mode p2p --transport ucx --device host --threads 1 --model qwen3-30b-a3b \
    --tokens 16 --sets 1 -n 100000000
  sleep 4 # until they measure
  local rank start=$SECONDS
  for rank in "${!pids[@]}"; do
    kill -0 "${pids[$rank]}" 2>/dev/null || fail "rank $rank ended before its link did: $(cat "$work/rank$rank")"
  done
  ip -n "${name}1" link set "${name}1" down
  for rank in "${!pids[@]}"; do
    local code=0
    wait "${pids[$rank]}" || code=$?
    ((code == 1)) || fail "rank $rank ended with $code instead of an error: $(cat "$work/rank$rank")"
    local others='[01]' # on the host that is lost
    if ((rank < 2)); then others='[23]'; fi
    grep -E "rank $others|ranks $others and $others" "$work/rank$rank" | tail -n 1 | sed "s/^/rank $rank: /" | grep . ||
      fail "rank $rank blames nobody on the other host: $(cat "$work/rank$rank")"
  done
  ((SECONDS - start <= deadline_s + 12)) || fail "it took $((SECONDS - start)) s, with a deadline of $deadline_s s"
}

for test in "${tests[@]}"; do
  echo "== $test"
  "test_${test//-/_}"
  echo "good: $test over $link_words"
done
