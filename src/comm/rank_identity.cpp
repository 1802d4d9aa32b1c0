#include "comm/rank_identity.hpp"

#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <thread>

#include "base/cuda_driver.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"
#include "transports/place.hpp"

namespace moelink {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

#if MOELINK_HAVE_CUDA
/// Hexadecimal.
std::string uuid_of(CUdevice device) {
  CUuuid uuid{};
  check_cuda(CudaDriver::get().device_get_uuid(&uuid, device), "cuDeviceGetUuid");
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (const char byte : uuid.bytes) {
    digits += kDigits[static_cast<unsigned char>(byte) >> 4];
    digits += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return digits;
}

void describe_gpu(int ordinal, RankInfo& info) {
  const CudaDriver& driver = CudaDriver::get();
  CUdevice device = 0;
  check_cuda(driver.device_get(&device, ordinal), "cuDeviceGet");
  std::array<char, 128> text{};
  check_cuda(driver.device_get_name(text.data(), text.size(), device), "cuDeviceGetName");
  info.device_name = text.data();
  check_cuda(driver.device_get_pci_bus_id(text.data(), text.size(), device), "cuDeviceGetPCIBusId");
  info.pci_bus_id = text.data();
  info.uuid = uuid_of(device);
}

/// The GPU of this process with that uuid, if it sees it.
std::optional<CUdevice> find_gpu(const std::string& uuid) {
  for (int ordinal = 0; ordinal < Device::cuda_count(); ++ordinal) {
    CUdevice device = 0;
    check_cuda(CudaDriver::get().device_get(&device, ordinal), "cuDeviceGet");
    if (uuid_of(device) == uuid) {
      return device;
    }
  }
  return std::nullopt;
}

Link link_between_gpus(const RankInfo& self, const RankInfo& peer) {
  if (self.uuid == peer.uuid) {
    return Link::same_device;
  }
  if (self.host != peer.host) {
    return Link::nvlink;  // one node over two machines: an NVLink fabric
  }
  const auto to = find_gpu(peer.uuid);
  if (!to) {
    return Link::hidden;
  }
  const CudaDriver& driver = CudaDriver::get();
  CUdevice from = 0;
  check_cuda(driver.device_get(&from, self.device.ordinal()), "cuDeviceGet");
  int access = 0;
  check_cuda(driver.device_can_access_peer(&access, from, *to), "cuDeviceCanAccessPeer");
  if (access == 0) {
    return Link::none;
  }
  int atomics = 0;
  check_cuda(driver.device_get_p2p_attribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from, *to),
             "cuDeviceGetP2PAttribute");
  return atomics != 0 ? Link::nvlink : Link::pcie;
}
#else
void describe_gpu(int /*ordinal*/, RankInfo& /*info*/) {}
Link link_between_gpus(const RankInfo& /*self*/, const RankInfo& /*peer*/) { return Link::none; }
#endif

Link link_between(const RankInfo& self, const RankInfo& peer) {
  if (self.rank == peer.rank) {
    return Link::self;
  }
  if (self.node != peer.node || self.device.is_host() != peer.device.is_host()) {
    return Link::none;
  }
  if (self.device.is_cuda()) {
    return link_between_gpus(self, peer);
  }
  return self.process_token == peer.process_token ? Link::process : Link::shared;
}

}  // namespace

RankInfo describe_self(int rank, Device device, std::string_view node) {
  RankInfo info;
  info.rank = rank;
  info.host = host_name();
  const RankPlace place = place_of(device);
  // Containers of one machine share its boot id, but neither shared memory nor sockets: the host name tells them apart.
  const std::string own_node = place.has_fabric ? node_key(place) : text(node_key(place), " host ", info.host);
  info.node_id = node.empty() ? own_node : std::string(node);
  info.process_id = ::getpid();
  info.process_token = place.process;
  info.device = device;
  if (device.is_cuda()) {
    describe_gpu(device.ordinal(), info);
  } else {
    info.device_name = text(std::thread::hardware_concurrency(), " processors");
  }
  return info;
}

Bytes encode(const RankInfo& info) {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(info.rank));
  out.u64(static_cast<std::uint64_t>(info.process_id));
  out.u64(info.process_token);
  out.u32(static_cast<std::uint32_t>(info.device.ordinal() + 1));  // 0: the host
  for (const std::string* text : {&info.host, &info.node_id, &info.device_name, &info.pci_bus_id, &info.uuid}) {
    out.string(*text);
  }
  return out.take();
}

RankInfo decode_rank_info(int rank, std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  RankInfo info;
  info.rank = static_cast<int>(in.u32());
  info.process_id = static_cast<std::int64_t>(in.u64());
  info.process_token = in.u64();
  const std::uint32_t device = in.u32();
  info.device = device == 0 ? Device::host() : Device::cuda(static_cast<int>(device) - 1);
  for (std::string* text : {&info.host, &info.node_id, &info.device_name, &info.pci_bus_id, &info.uuid}) {
    *text = in.string();
  }
  if (info.rank != rank || in.remaining() != 0) {
    throw Error(ErrorCode::peer, text("rank ", rank, " described itself as rank ", info.rank, " with ", in.remaining(),
                                      " bytes left over"));
  }
  return info;
}

void number_nodes(std::vector<RankInfo>& ranks) {
  int num_nodes = 0;
  for (auto info = ranks.begin(); info != ranks.end(); ++info) {
    auto first = ranks.begin();
    while (first->node_id != info->node_id) {
      ++first;
    }
    info->node = first == info ? num_nodes++ : first->node;
  }
}

std::vector<Link> links_of(int rank, const std::vector<RankInfo>& ranks) {
  const RankInfo& self = ranks[static_cast<std::size_t>(rank)];
  std::vector<Link> links;
  links.reserve(ranks.size());
  for (const RankInfo& peer : ranks) {
    links.push_back(link_between(self, peer));
  }
  return links;
}

}  // namespace moelink
