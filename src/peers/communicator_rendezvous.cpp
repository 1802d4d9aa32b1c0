#include "peers/communicator_rendezvous.hpp"

#include <cstring>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "comm/bootstrap.hpp"
#include "comm/communicator_state.hpp"
#include "moelink/error.hpp"

namespace moelink {

CommunicatorRendezvous::CommunicatorRendezvous(Communicator communicator, std::string what, std::vector<int> nodes)
    : communicator_(std::move(communicator)), what_(std::move(what)), nodes_(std::move(nodes)) {}

void CommunicatorRendezvous::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const auto parts = communicator_.state().bootstrap->all_gather(what_ + " memory", mine, communicator_.deadline());
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (parts[r].size() != mine.size()) {
      throw Error(ErrorCode::peer, what_ + ": rank " + std::to_string(r) + " sent " + std::to_string(parts[r].size()) +
                                       " bytes about its memory, expected " + std::to_string(mine.size()));
    }
    std::memcpy(all.data() + r * mine.size(), parts[r].data(), mine.size());
  }
}

void CommunicatorRendezvous::barrier() {
  communicator_.state().bootstrap->barrier(what_ + " memory", communicator_.deadline());
}

void CommunicatorRendezvous::give_up(std::string_view words) noexcept {
  communicator_.state().bootstrap->abort(
      {.code = ErrorCode::timeout, .rank = rank(), .sentence = text(what_, ": rank ", rank(), ": ", words)});
}

}  // namespace moelink
