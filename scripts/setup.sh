# Sourced by the other scripts, never run: makes sure that what a build needs is there, and builds.
# Debian 12 and Ubuntu 24.04; as root or with sudo. Installs with apt what is missing and nothing else.
# shellcheck shell=bash disable=SC2034
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

say() { printf '\n== %s\n' "$*"; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}
# The script's opening comment, which says how it is called.
show_help() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"; }
usage() {  # <what is wrong with the arguments>
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  show_help >&2
  exit 2
}

# What a build needs: what to look for (a command, or a file under an include or CMake directory), and its package.
needs_of_build='
g++                                     g++
cmake                                   cmake
ninja                                   ninja-build
CLI/CLI.hpp                             libcli11-dev
nlohmann/json.hpp                       nlohmann-json3-dev
fmt/format.h                            libfmt-dev'
# What the engine needs; without it, it is left out.
useful_for_engine='
pcre2.h                                 libpcre2-dev
utf8proc.h                              libutf8proc-dev'
# Without it, the engine has no endpoint.
useful_for_serve='
httplib.h                               libcpp-httplib-dev
pkg-config                              pkg-config'
needs_of_tests='
gtest/gtest.h                           libgtest-dev
pkg-config                              pkg-config'
# What some tests need; without it they are skipped, or their part of the library is not built.
useful_for_tests='
mpirun                                  openmpi-bin
mpicxx                                  libopenmpi-dev
ucp/api/ucp.h                           libucx-dev
infiniband/verbs.h                      libibverbs-dev
ip                                      iproute2
python3                                 python3
spin                                    spin'
# What scripts/test-verbs-vm.sh needs; without it, it is skipped.
useful_for_vm='
qemu-system-x86_64                      qemu-system-x86
busybox                                 busybox-static
cpio                                    cpio
rdma                                    iproute2
/etc/libibverbs.d/rxe.driver            ibverbs-providers'

have() {  # a command, a header, or a file
  if [[ $1 == /* ]]; then
    [[ -e $1 ]]
  elif [[ $1 == */* || $1 == *.h ]]; then
    [[ -e /usr/include/$1 || -e /usr/local/include/$1 ]]
  else
    command -v "$1" >/dev/null
  fi
}

missing_packages() {  # of the lists given, one package a line
  local what package
  printf '%s\n' "$@" | while read -r what package; do
    if [[ -n $what ]] && ! have "$what"; then echo "$package"; fi
  done
}

# Runs apt-get as root: directly, or by sudo.
as_root() {
  if ((EUID == 0)); then
    "$@"
  else
    sudo env DEBIAN_FRONTEND=noninteractive "$@"
  fi
}

can_install() { command -v apt-get >/dev/null && { ((EUID == 0)) || command -v sudo >/dev/null; }; }

# apt_install <packages...>: quiet; false, with apt's own words, if it did not work.
apt_install() {
  local log
  log=$(mktemp)
  if { as_root apt-get update -qq || true; as_root apt-get install -qq -y --no-install-recommends "$@"; } >"$log" 2>&1; then
    rm -f "$log"
  else
    tail -n 15 "$log" >&2
    rm -f "$log"
    return 1
  fi
}

# install_if_possible <lists...>: a word, not an error, where that does not work.
install_if_possible() {
  local packages
  mapfile -t packages < <(missing_packages "$@")
  if ((${#packages[@]} == 0)); then return 0; fi
  say "Installing: ${packages[*]}"
  if ! can_install || ! apt_install "${packages[@]}"; then
    say "Not installed: ${packages[*]}. What needs them is left out."
  fi
}

# The package of the kernel for virtual machines, if it has been fetched.
vm_kernel_package() { compgen -G "$root/build/vm-kernel/linux-image-*.deb" | tail -n 1; }

# Fetches it and installs nothing; a word, not an error, where that does not work.
fetch_vm_kernel() {
  local folder=$root/build/vm-kernel attempt name
  if vm_kernel_package >/dev/null || ! have qemu-system-x86_64; then return 0; fi
  say "Fetching: a kernel for virtual machines"
  mkdir -p "$folder"
  for attempt in 1 2; do
    name=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p')
    if [[ -n $name ]] && (cd "$folder" && apt-get download -qq "$name") >/dev/null 2>&1; then return 0; fi
    if ((attempt == 1)); then as_root apt-get update -qq >/dev/null 2>&1 || true; fi
  done
  say "Not fetched: linux-image-amd64. What needs it is left out."
}

# install_missing <lists...>
install_missing() {
  local packages still
  mapfile -t packages < <(missing_packages "$@")
  if ((${#packages[@]} > 0)); then
    say "Missing: ${packages[*]}"
    if can_install; then
      echo "   installing with apt-get"
      apt_install "${packages[@]}" || true
    fi
    mapfile -t still < <(missing_packages "$@")
    if ((${#still[@]} > 0)); then
      die "still missing: ${still[*]} (apt-get needs root or sudo, and a Debian or Ubuntu). Install them, for example by
    apt-get install ${still[*]}
and run this again."
    fi
  fi
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9]*\.[0-9]*\).*/\1/p')
  if [[ $(printf '%s\n' 3.25 "$version" | sort -V | head -n 1) != 3.25 ]]; then
    die "cmake $version is too old: 3.25 or newer is needed (Debian 12 and Ubuntu 24.04 have it)"
  fi
  install_cuda_if_useful
}

# A GPU without the toolkit: NVIDIA's packages if apt knows them, else a word on what to do. Never fails.
install_cuda_if_useful() {
  if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then return 0; fi
  if command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; then return 0; fi
  local driver release version
  driver=$(nvidia-smi | sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p')
  if can_install; then
    as_root apt-get update -qq >/dev/null 2>&1 || true
    for release in 13.0 12.9 12.8; do
      version=${release/./-}
      if [[ $(printf '%s\n' "$release" "$driver" | sort -V | head -n 1) == "$release" ]] &&
        apt-cache show "cuda-nvrtc-dev-$version" >/dev/null 2>&1; then
        say "Installing: NVRTC and nvcc of CUDA $release"
        apt_install "cuda-nvrtc-dev-$version" "cuda-cudart-dev-$version" "cuda-nvcc-$version" || break
        return 0
      fi
    done
  fi
  say "There is a GPU here (driver for CUDA $driver), but no CUDA toolkit, and apt does not know NVIDIA's packages.
   The host backend alone is built. For the GPU: https://developer.nvidia.com/cuda-downloads (12.8 or newer, at most
   $driver), then run this again."
}

# build <preset> [target...]
build() {
  local preset=$1 launcher=()
  shift
  if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  say "Building: preset $preset"
  cmake --preset "$preset" "${launcher[@]}"
  cmake --build --preset "$preset" --parallel "$(nproc)" ${1:+--target "$@"}
}
