#include "peers/peer_workspace.hpp"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "comm/agree.hpp"
#include "comm/bootstrap.hpp"
#include "comm/communicator_state.hpp"
#include "moelink/error.hpp"
#include "moelink/protocol/carver.hpp"
#include "moelink/stream.hpp"

namespace moelink {
namespace {

struct SharedLayout {
  Place<u8> payload;
  Place<u64> fault_word;
  i64 total_bytes;
};

SharedLayout layout_of(i64 shared_bytes) {
  Carver carver;
  SharedLayout layout{};
  layout.payload = carver.take<u8>(shared_bytes);
  layout.fault_word = carver.take<u64>(1);
  layout.total_bytes = carver.total_bytes();
  return layout;
}

PeerGroupOptions options_for(const Communicator& communicator) {
  PeerGroupOptions options;
  options.deadline = communicator.deadline();
  return options;
}

/// The addresses of the other ranks' fault words, as this rank's device sees them.
std::vector<u64*> fault_words_of_peers(const Window& window, i64 offset_bytes) {
  std::vector<u64*> words;
  for (int peer = 0; peer < window.num_ranks; ++peer) {
    if (peer != window.rank && window.base(peer) != nullptr) {
      words.push_back(window.at<u64>(peer, offset_bytes));
    }
  }
  return words;
}

Buffer upload(const std::vector<u64*>& words, Device device) {
  if (words.empty()) {
    return {};
  }
  const std::size_t size_bytes = words.size() * sizeof(u64*);
  Buffer buffer(device, size_bytes);
  const Stream stream(device, {.num_threads = 1});
  copy_bytes(buffer.data(), words.data(), size_bytes, stream);
  stream.synchronize();
  return buffer;
}

/// How long a fault that is known waits for the words that explain it.
constexpr std::chrono::milliseconds kPatience{200};

}  // namespace

PeerWorkspace::PeerWorkspace(const Communicator& communicator, std::string what, i64 shared_bytes, Multicast multicast,
                             std::vector<int> nodes)
    : communicator_(communicator),
      what_(std::move(what)),
      rendezvous_(communicator, what_, std::move(nodes)),
      peers_(rendezvous_, communicator.device(), options_for(communicator)),
      memory_(peers_.allocate(static_cast<std::size_t>(layout_of(shared_bytes).total_bytes), multicast)),
      record_(communicator.device(), 0) {
  const i64 word_offset = layout_of(shared_bytes).fault_word.offset_bytes;
  const std::vector<u64*> peer_words = fault_words_of_peers(window(), word_offset);
  agree_over_ranks(
      *communicator_.state().bootstrap, what_ + ": fault record",
      [&] {
        record_ = PinnedBuffer(communicator.device(), sizeof(FaultRecord));
        peer_words_ = upload(peer_words, communicator.device());
        // May need a thread, which a rank may not get: the others must hear of it.
        const auto& watched = *static_cast<const FaultRecord*>(record_.data());
        watch_.emplace(watched, [this, &watched] { tell_group(*read_fault(watched)); });
      },
      communicator.deadline());
  auto* record = static_cast<FaultRecord*>(record_.data());
  fault_context_ = {.word = window().at<u64>(window().rank, word_offset),
                    .record = record,
                    .peer_words = peer_words_.as<u64* const>(),
                    .num_peers = static_cast<i32>(peer_words.size()),
                    .rank = window().rank,
                    .timeout_ns = static_cast<u64>(std::chrono::nanoseconds(communicator.deadline()).count())};
  subscription_ =
      communicator_.state().bootstrap->faults().subscribe([record](const GroupFault&) { request_abort(*record); });
}

PeerWorkspace::~PeerWorkspace() {
  if (communicator_.state().bootstrap->faults().raised()) {
    memory_.abandon();
  }
}

i64 PeerWorkspace::memory_bytes(i64 shared_bytes) { return layout_of(shared_bytes).total_bytes; }

std::string PeerWorkspace::why_no_multicast() const {
  if (window().multicast != nullptr) {
    return "";
  }
  const std::string& reason = peers_.why_no_multicast();
  return reason.empty() ? "the driver refused it (a warning has its words)" : reason;
}

/// Kernels give up because the group of some rank has failed. Its reason is here or on its way, and says more.
void PeerWorkspace::check_reason_of_abort() const {
  const Deadline patience = Deadline::after(kPatience);
  FaultBoard& faults = communicator_.state().bootstrap->faults();
  while (!faults.raised() && !patience.expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  faults.check();
}

void PeerWorkspace::tell_group(const FaultRecord& fault) const noexcept {
  communicator_.state().bootstrap->abort(
      {.code = error_of(fault).code(), .rank = fault.fault.rank, .sentence = what_ + ": " + to_string(fault)});
}

void PeerWorkspace::check() {
  if (const auto record = read_fault(*static_cast<const FaultRecord*>(record_.data()))) {
    if (record->fault.kind == FaultKind::aborted) {
      check_reason_of_abort();
    }
    tell_group(*record);
    throw error_of(*record);
  }
  communicator_.check();
}

}  // namespace moelink
