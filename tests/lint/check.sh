#!/usr/bin/env bash
# Structural rules that no compiler enforces. Each rule is a function that prints the lines that break it.
#   check.sh --list            the names of the rules
#   check.sh <rule> <root>     checks the tree at <root>; fails, naming the places, if the rule is broken
#   check.sh --plant <rule>    proves that the rule can fail: the bad file of the rule in an empty tree must be found
set -euo pipefail

rules=(cuda_arch stand_alone_fences upward_includes private_includes_in_perf asserts_and_traps errors_documented
  broken_links unfinished_work)

# sources <root> <folder...>: source files below those folders that exist.
sources() {
  local root=$1 folder
  shift
  for folder in "$@"; do
    if [[ -d $root/$folder ]]; then
      find "$root/$folder" -type f \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cuh' -o -name '*.cu' \) -print
    fi
  done
}

# except <pattern>: of the paths on standard input, those that do not match.
except() { grep -vE -- "$1" || true; }

# code_lines <pattern>: of the files on standard input, the lines whose code (not its // comment) matches.
code_lines() {
  local pattern=$1 line code
  { xargs -r -d '\n' grep -nHE -- "$pattern" || true; } | while IFS= read -r line; do
    code=${line#*:*:}
    if grep -qE -- "$pattern" <<<"${code%%//*}"; then printf '%s\n' "$line"; fi
  done
}

# What differs between host and device lives in primitives and what they rest on.
find_cuda_arch() {
  sources "$1" include protocol src transports kernels perf engine |
    except "^$1/kernels/(primitives|ptx|exec)/" | code_lines '__CUDA_ARCH__'
}
plant_cuda_arch() { plant "$1/kernels/moe/bad.cuh" '#if __CUDA_ARCH__ >= 900'; }

# ThreadSanitizer cannot see a fence that belongs to no access.
find_stand_alone_fences() {
  sources "$1" include protocol src transports kernels perf engine | except "^$1/kernels/(primitives|ptx)/" |
    code_lines '__threadfence|atomic_thread_fence|__sync_synchronize|"[^"]*\b(fence|membar)\.(sc|acq_rel|acquire|release|proxy|mbarrier_init|gl|cta|sys)'
}
plant_stand_alone_fences() {
  plant "$1/src/comm/bad.cpp" 'std::atomic_thread_fence(std::memory_order_seq_cst);'
  plant "$1/kernels/moe/bad.cuh" 'asm volatile("fence.acq_rel.sys;" ::: "memory");'
}

# An include names a layer and a file; what it reaches is what its target links.
find_upward_includes() {
  sources "$1" include protocol src transports kernels perf engine tests | code_lines '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]\.\.?/'
}
plant_upward_includes() { plant "$1/src/base/bad.cpp" '#include "../launch/kernel.hpp"'; }

# The perf tools and the engine are users: public headers only.
find_private_includes_in_perf() {
  sources "$1" perf engine |
    code_lines '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<](base|runtime|jit|launch|transports|comm|peers|exchange|all_reduce)/'
}
plant_private_includes_in_perf() { plant "$1/perf/bad.cpp" '#include "runtime/host_queue.hpp"'; }

# Failures are exceptions and fault records: never the end of the process or of the CUDA context.
find_asserts_and_traps() {
  sources "$1" include protocol src transports kernels engine |
    code_lines '\bassert[[:space:]]*\(|<cassert>|__trap|__builtin_trap|std::abort|std::terminate|"[^"]*\btrap;'
}
plant_asserts_and_traps() {
  plant "$1/src/exchange/bad.cpp" 'assert(rows > 0);'
  plant "$1/kernels/moe/bad.cuh" '  __trap();'
}

# Every error code has its paragraph in docs/errors.md.
find_errors_documented() {
  local code
  sed -n '/^enum class ErrorCode/,/^};/s/^ *\([a-z_]*\),.*/\1/p' "$1/include/moelink/error.hpp" |
    while IFS= read -r code; do
      grep -q "^## $code\$" "$1/docs/errors.md" || echo "$1/docs/errors.md: no section '## $code'"
    done
}
plant_errors_documented() {
  plant "$1/include/moelink/error.hpp" $'enum class ErrorCode {\n  capacity,\n  new_code,\n};'
  plant "$1/docs/errors.md" '## capacity'
}

# Links between the documents lead somewhere.
find_broken_links() {
  local file link
  find "$1" -maxdepth 1 -name '*.md' -print >"$scratch/documents"
  find "$1/docs" -name '*.md' -print >>"$scratch/documents"
  while IFS= read -r file; do
    { grep -oE '\]\([^)# ]+[)#]' "$file" || true; } | sed 's/^](//; s/.$//' | while IFS= read -r link; do
      [[ $link == *://* || -e $(dirname "$file")/$link ]] || echo "$file: no such file: $link"
    done
  done <"$scratch/documents"
}
plant_broken_links() { plant "$1/docs/bad.md" 'see [there](nowhere.md)'; }

# Nothing is promised for later.
find_unfinished_work() {
  sources "$1" include protocol src transports kernels perf engine tests |
    { xargs -r -d '\n' grep -HnE '\b(TODO|FIXME|XXX)\b' || true; }
}
plant_unfinished_work() { plant "$1/src/base/bad.cpp" "// $(printf 'TO%s' DO): later"; }

plant() {
  mkdir -p "$(dirname "$1")"
  printf '%s\n' "$2" >"$1"
}

check() {  # <rule> <root>
  local found
  found=$("find_$1" "$2")
  if [[ -n $found ]]; then
    printf 'rule %s is broken:\n%s\n' "$1" "$found"
    return 1
  fi
}

plant_and_check() {  # <rule>
  local tree=$scratch/tree planted found
  mkdir -p "$tree"/{include/moelink,docs}
  "plant_$1" "$tree"
  found=$(check "$1" "$tree" || true)
  # Every planted source must be named, not just one of them.
  find "$tree" -name 'bad.*' | while IFS= read -r planted; do
    if [[ $found != *"$planted:"* ]]; then
      echo "rule $1 did not see $planted" && return 1
    fi
  done
  if [[ -z $found ]]; then
    echo "rule $1 cannot fail" && return 1
  fi
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

known() {
  local rule
  for rule in "${rules[@]}"; do [[ $rule == "$1" ]] && return 0; done
  echo "no rule '$1'; known: ${rules[*]}" >&2
  exit 2
}

case ${1-} in
  --list) printf '%s\n' "${rules[@]}" ;;
  --plant) known "${2-}" && plant_and_check "$2" ;;
  *) known "${1-}" && check "$1" "${2:?usage: check.sh <rule> <root>}" ;;
esac
