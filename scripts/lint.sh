#!/usr/bin/env bash
# clang-tidy 14 (.clang-tidy) over host sources, shellcheck over the scripts; the structural rules of tests/lint run with
# every ctest. clang-tidy 14 cannot parse CUDA 13 headers, so the build it looks at is the one without CUDA.
#   scripts/lint.sh [file.cpp...]    only these
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

for file in "$@"; do
  case $file in
    -h | --help) show_help && exit 0 ;;
    -*) usage "unknown flag '$file'" ;;
    *.cpp) [[ -f $file ]] || usage "there is no file '$file'" ;;
    *) usage "'$file' is no .cpp file" ;;
  esac
done

tidy=$(command -v clang-tidy-14 || command -v clang-tidy || true)
if [[ -z $tidy ]] || ! "$tidy" --version | grep -q 'version 14\.'; then
  die "clang-tidy 14 is needed: apt-get install clang-tidy-14"
fi
install_missing "$needs_of_build" "$needs_of_tests"
install_if_possible "$useful_for_engine" "$useful_for_serve"
cmake --preset no-cuda >/dev/null

status=0
for rule in $(tests/lint/check.sh --list); do
  tests/lint/check.sh "$rule" "$root" || status=1
done
if command -v shellcheck >/dev/null; then
  shellcheck -x --source-path=SCRIPTDIR scripts/*.sh tests/lint/*.sh tests/scripts/*.sh tests/vm/{init,steps} .ci/run || status=1
else
  echo "shellcheck is not installed: the scripts were not checked"
fi

files=("$@")
if ((${#files[@]} == 0)); then
  mapfile -t files < <(git ls-files 'src/*.cpp' 'transports/*.cpp' 'perf/*.cpp' 'engine/*.cpp' 'tests/*.cpp')
fi
# Only what this build compiles: a source of the CUDA backend alone has no command here.
known=()
for file in "${files[@]}"; do
  if grep -qF "\"$(realpath "$file")\"" build-no-cuda/compile_commands.json; then
    known+=("$file")
  else
    echo "not part of this build, not checked: $file"
  fi
done
say "clang-tidy: ${#known[@]} files"
printf '%s\0' "${known[@]}" | xargs -0 -r -n 1 -P "$(nproc)" "$tidy" -p build-no-cuda --quiet --warnings-as-errors='*' \
  --extra-arg-before=-include --extra-arg-before="$root/tests/lint/source_location.hpp" \
  --extra-arg=-Wno-unknown-warning-option 2> >(grep -v 'warnings generated' >&2) ||
  status=1
exit "$status"
