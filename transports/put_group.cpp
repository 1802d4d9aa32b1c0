#include "transports/put_group.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "transports/gather.hpp"
#include "transports/together.hpp"

namespace moelink {

std::vector<Bytes> gather_bytes(Rendezvous& rendezvous, std::span<const std::byte> mine) {
  const std::uint64_t my_size = mine.size();
  const auto sizes = gather<std::uint64_t>(rendezvous, std::span(&my_size, 1));
  const std::size_t stride = *std::ranges::max_element(sizes);
  Bytes padded(mine.begin(), mine.end());
  padded.resize(stride);
  Bytes all(stride * sizes.size());
  if (stride != 0) {
    rendezvous.all_gather(padded, all);
  }
  std::vector<Bytes> parts;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    const auto part = std::span(all).subspan(rank * stride, sizes[rank]);
    parts.emplace_back(part.begin(), part.end());
  }
  return parts;
}

void connect_puts(Rendezvous& rendezvous, PutTransport& transport) {
  Bytes mine;
  together(rendezvous, text("preparing connections over ", name_of(transport.kind())),
           [&] { mine = transport.address(); });
  const std::vector<Bytes> addresses = gather_bytes(rendezvous, mine);
  together(rendezvous, text("connecting over ", name_of(transport.kind())), [&] { transport.connect(addresses); });
}

std::vector<std::unique_ptr<RemoteRegion>> share_region(Rendezvous& rendezvous, PutTransport& transport,
                                                        const LocalRegion* mine, std::span<const int> remotes) {
  const std::vector<Bytes> keys = gather_bytes(rendezvous, mine != nullptr ? mine->key() : Bytes());
  std::vector<std::unique_ptr<RemoteRegion>> regions(keys.size());
  together(rendezvous, "importing regions of peers", [&] {
    for (const int peer : remotes) {
      const auto at = static_cast<std::size_t>(peer);
      if (!keys[at].empty()) {
        regions[at] = transport.import_region(peer, keys[at]);
      }
    }
  });
  return regions;
}

}  // namespace moelink
