// What every transport checks of a put, and how it keeps its failure.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "transports/put.hpp"

namespace moelink {

/// Throws Error (invalid_argument), naming the peer and the numbers, unless every put lies inside regions of `owner` and
/// has at most `max_bytes`.
void check_puts(const PutTransport& owner, std::span<const Put> puts, std::size_t max_bytes);
/// The same of memory to be registered.
void check_memory(const PutMemory& memory);
/// The same of a peer's number: one of options.remotes.
void check_peer(const PutOptions& options, int peer);

/// Keeps the first failure of a transport and throws it again.
class FailureKeeper {
 public:
  void check() const {
    if (failure_) {
      throw *failure_;
    }
  }
  [[noreturn]] void fail(int peer, const std::string& sentence) {
    if (!failure_) {
      failure_.emplace(peer, sentence);
    }
    throw *failure_;
  }
  void keep(const PutFailure& failure) {
    if (!failure_) {
      failure_.emplace(failure);
    }
  }

 private:
  std::optional<PutFailure> failure_;
};

/// Keys and addresses as bytes: kind, length, contents and a checksum, so that one of another transport, a damaged one
/// or garbage is refused, not misread.
[[nodiscard]] Bytes seal(PutKind kind, std::span<const std::byte> contents);
/// The contents. `what` and `peer` name it in the error: "key", 3. Throws Error (peer).
[[nodiscard]] std::span<const std::byte> unseal(PutKind kind, std::string_view what, int peer,
                                                std::span<const std::byte> sealed);

}  // namespace moelink
