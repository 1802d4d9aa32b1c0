#!/usr/bin/env bash
# Sets the machine up, builds, and runs every test that this machine can run: the release build, and the tests labelled
# tsan and asan under ThreadSanitizer and AddressSanitizer. All of them are one ctest run with one closing summary.
#   scripts/test.sh [preset...]    only these of: default debug no-cuda tsan asan   (default: default tsan asan)
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

for preset in "$@"; do
  case $preset in
    default | debug | no-cuda | tsan | asan) ;;
    -h | --help) show_help && exit 0 ;;
    *) usage "'$preset' is no preset" ;;
  esac
done
presets=("$@")
if ((${#presets[@]} == 0)); then presets=(default tsan asan); fi
install_missing "$needs_of_build" "$needs_of_tests"
install_if_possible "$useful_for_tests" "$useful_for_engine" "$useful_for_serve" "$useful_for_vm"
fetch_vm_kernel

# One folder whose tests are those of all builds.
all_tests=$root/build/all-tests
mkdir -p "$all_tests"
: >"$all_tests/CTestTestfile.cmake"
for preset in "${presets[@]}"; do
  build "$preset"
  folder=$root/build
  if [[ $preset != default ]]; then folder+=-$preset; fi
  echo "subdirs(\"$folder\")" >>"$all_tests/CTestTestfile.cmake"
done

# ThreadSanitizer of gcc before 14 cannot place its shadow where addresses are randomised over more than 28 bits.
launcher=()
bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)
if ((bits > 28)) && setarch "$(uname -m)" -R true 2>/dev/null; then launcher=(setarch "$(uname -m)" -R); fi

say "Testing: ${presets[*]}"
log=$all_tests/Testing/Temporary/LastTest.log
rm -f "$log"
# ctest's summary is held back until the reasons for what was skipped are told, so that it stands last.
status=0
"${launcher[@]}" ctest --test-dir "$all_tests" --output-on-failure --no-tests=error --parallel "$(nproc)" |
  awk -v reasons="awk -f '$root/scripts/skip_reasons.awk' '$log'" '
    /% tests passed/ { held = 1 }
    held { summary = summary $0 "\n"; next }
    { print; fflush() }
    END {
      while ((reasons | getline line) > 0) print line
      printf "\n%s", summary
    }' || status=$?
exit "$status"
