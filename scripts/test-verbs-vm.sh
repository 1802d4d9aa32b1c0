#!/usr/bin/env bash
# Runs the verbs transport on a real RDMA stack where there is no RDMA hardware: in two virtual machines with Debian's
# kernel and Soft-RoCE (rdma_rxe) over two virtio NICs each, which are joined. They are emulated (TCG): KVM need not work here.
# tests/vm/steps says what runs inside.
#
#   scripts/test-verbs-vm.sh [options]
#
#   --bin FOLDER      programs that are built; nothing is installed, fetched or built   (default: builds into build/bin)
#   --short           half of the steps, as in ctest         (default: all of them)
#   --kernel FILE     a package linux-image-*.deb            (default: apt's, fetched into build/vm-kernel, not installed)
#
# The consoles' logs stay in vm/ beside the programs' folder. Exit code: 0 all good, 1 something failed, 2 usage, 77 what
# it needs is missing (skipped).
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

programs=(nic_put_test put_perf moe_perf)
limit_s=600   # of each machine
boot_limit_s=120 # of both, until Soft-RoCE is there

bin='' package='' all=1
while (($#)); do
  case $1 in
    -h | --help) show_help && exit 0 ;;
    --short) all=0 limit_s=300 && shift ;;
    --bin | --kernel)
      if (($# < 2)) || [[ ! -e $2 ]]; then usage "$1 needs a path that exists"; fi
      if [[ $1 == --bin ]]; then bin=$(realpath "$2"); else package=$(realpath "$2"); fi
      shift 2 ;;
    *) usage "unknown argument '$1'" ;;
  esac
done

skip() { echo "skipped: $*" && exit 77; }
[[ $(uname -m) == x86_64 ]] || skip "the virtual machines are x86-64, and this is $(uname -m)"
if [[ -z $bin ]]; then
  install_missing "$needs_of_build" "$needs_of_tests"
  install_if_possible "$useful_for_vm"
  if [[ -z $package ]]; then fetch_vm_kernel; fi
  build default "${programs[@]}"
  bin=$root/build/bin
fi
missing=$(missing_packages "$useful_for_vm" | xargs)
[[ -z $missing ]] || skip "virtual machines need packages that are not installed: $missing"
if [[ -z $package ]]; then
  package=$(vm_kernel_package) || skip "virtual machines need a kernel, and apt gave none (--kernel names one)"
fi
for program in "${programs[@]}"; do
  [[ -x $bin/$program ]] || die "there is no $bin/$program; build it"
done
work=$(dirname "$bin")/vm
tree=$work/tree # the machines' root
mkdir -p "$work"

# unpack_kernel <folder>: vmlinuz, and those modules that Soft-RoCE may need, in lib/modules/<version>.
unpack_kernel() {
  local part=$1.part version pattern patterns=()
  for pattern in drivers/infiniband/{core,sw/rxe}/\* drivers/virtio/\* drivers/net/{virtio_net,net_failover}.ko\* \
    net/core/failover.ko\* net/ipv4/udp_tunnel.ko\* net/ipv6/ip6_udp_tunnel.ko\* crypto/crc32_generic.ko\*; do
    patterns+=("*/modules/*/kernel/$pattern")
  done
  rm -rf "$1" "$part"
  mkdir -p "$part"
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$part" --wildcards './boot/vmlinuz-*' '*/modules.builtin' "${patterns[@]}"
  version=$(basename "$part"/boot/vmlinuz-*)
  version=${version#vmlinuz-}
  if [[ -d $part/usr/lib ]]; then mv "$part/usr/lib" "$part/lib"; fi
  find "$part" -name '*.ko.xz' -exec xz -d {} +
  mv "$part/boot/vmlinuz-$version" "$part/vmlinuz"
  busybox depmod -b "$part" "$version"
  mv "$part" "$1"
}

# take <files...>: into the tree, with the libraries that they are linked with, each at its own path.
take() {
  local file
  for file in "$@"; do
    cp -L --parents "$file" "$tree"
    { ldd "$file" | grep -o '/[^ ]*' || true; } | xargs -r cp -L --parents -t "$tree"
  done
}

make_root() { # <folder of the kernel>
  local module program
  rm -rf "$tree"
  mkdir -p "$tree"/{bin,dev,proc,sys,tmp,lib}
  cp "$(command -v busybox)" "$tree/bin/busybox"
  take "$(command -v rdma)" "$(ldconfig -p | sed -n 's/.*libibverbs\.so\.1 .* => //p' | head -n 1)" \
    /usr/lib/*/libibverbs/librxe-rdmav*.so
  ln -s "$(command -v rdma)" "$tree/bin/rdma"
  cp --parents /etc/libibverbs.d/rxe.driver "$tree"
  for program in "${programs[@]}"; do
    take "$bin/$program"
    mv "$tree$bin/$program" "$tree/bin/$program"
  done
  cp -r "$1/lib/modules" "$tree/lib/"
  # Without crc32_generic Soft-RoCE finds no crc32 and adds no link.
  for module in virtio_pci virtio_net crc32_generic rdma_rxe ib_uverbs; do
    if ! grep -q "/$module\.ko" "$1"/lib/modules/*/modules.builtin; then echo "$module"; fi
  done >"$tree/modules"
  cp tests/vm/{init,steps} "$tree"
  (cd "$tree" && find . | cpio -o -H newc --quiet) >"$work/root.cpio"
}

# start_machine <0 or 1> <server=on or off>: it ends with this script, whatever ends that. Links are streams: a socket
# of datagrams loses some, and Soft-RoCE before Linux 6.6 breaks connections ("remote invalid request") when it sends again.
machines=()
start_machine() {
  setpriv --pdeathsig TERM timeout -k 5 "$limit_s" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
    -accel tcg -cpu max -smp 1 -m 768 -kernel "$kernel/vmlinuz" -initrd "$work/root.cpio" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on VM=$1 ALL=$all" -serial "file:$work/vm$1.log" \
    -netdev "stream,id=link0,$2,addr.type=unix,addr.path=$work/link0" \
    -device "virtio-net-pci,netdev=link0,mac=52:54:00:00:00:0$1,romfile=" \
    -netdev "stream,id=link1,$2,addr.type=unix,addr.path=$work/link1" \
    -device "virtio-net-pci,netdev=link1,mac=52:54:00:00:01:0$1,romfile=" >"$work/qemu$1.log" 2>&1 &
  machines+=($!)
}

# Whether a machine took all its steps, and each was good.
is_good() { # <0 or 1>
  local log=$work/vm$1.log num_steps num_good
  num_steps=$(grep -ac "^vm $1: step: " "$log" || true)
  num_good=$(grep -ac "^vm $1: good: " "$log" || true)
  ((num_steps > 0 && num_steps == num_good)) && grep -aq "^vm $1: ends" "$log" && ! grep -aq "^vm $1: FAILED" "$log"
}

say "Two virtual machines: $(basename "$package" .deb)"
kernel=$work/$(basename "$package" .deb)
[[ -e $kernel/vmlinuz ]] || unpack_kernel "$kernel"
make_root "$kernel"
trap 'kill "${machines[@]}" 2>/dev/null || true' EXIT
start_machines() {
  rm -f "$work"/{link?,vm?.log}
  machines=()
  start_machine 0 server=on
  for _ in {1..100}; do
    if [[ -S $work/link0 && -S $work/link1 ]]; then break; fi
    sleep 0.1
  done
  start_machine 1 server=off
}

is_up() { grep -aqs "^vm $1: ready" "$work/vm$1.log"; }                         # <0 or 1>
has_failed() { is_up "$1" && grep -aqs "^vm $1: FAILED" "$work/vm$1.log"; } # <0 or 1>

# Whether both machines have come up, within the limit. That they do is emulation's part, and nothing of what is tested:
# it is tried twice. What has failed in a machine that was up, is not.
come_up() {
  local end=$((SECONDS + boot_limit_s))
  until is_up 0 && is_up 1; do
    if ((SECONDS >= end)) || ! kill -0 "${machines[@]}" 2>/dev/null; then
      is_up 0 && is_up 1
      return
    fi
    sleep 0.2
  done
}

start_machines
if ! come_up && ! has_failed 0 && ! has_failed 1; then
  say "The virtual machines did not come up within $boot_limit_s s; once more. Their consoles:"
  cat "$work"/qemu?.log "$work"/vm?.log || true
  kill "${machines[@]}" 2>/dev/null || true
  wait "${machines[@]}" || true
  start_machines
fi

failed=0
for vm in 0 1; do
  code=0
  wait "${machines[vm]}" || code=$?
  touch "$work/vm$vm.log"
  if ((code == 0)) && is_good "$vm"; then
    grep -a "^vm $vm: " "$work/vm$vm.log"
  else
    failed=1
    printf '\nFAILED: virtual machine %d; qemu ended with %d (124: after %d s). Its console:\n' "$vm" "$code" "$limit_s"
    cat "$work/qemu$vm.log" "$work/vm$vm.log"
  fi
done
exit $failed
