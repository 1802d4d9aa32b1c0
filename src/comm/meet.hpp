// Where ranks meet: from what the launcher, or the caller's own all-gather, says to a Bootstrap.
#pragma once

#include <chrono>
#include <memory>

#include "comm/bootstrap.hpp"
#include "comm/launcher.hpp"
#include "moelink/communicator.hpp"

namespace moelink {

/// At MASTER_ADDR over TCP, or, when all ranks are on this machine and the job has an id, at an abstract Unix socket of
/// that name. Throws ErrorCode::invalid_argument when neither is possible.
[[nodiscard]] std::unique_ptr<Bootstrap> meet_by_launcher(const Launch& launch, const Environment& environment,
                                                          std::chrono::milliseconds patience);

/// Rank 0 listens, and publishes where, with a fresh key, through `all_gather`. Whatever goes wrong on rank 0 before
/// that is published instead, and thrown on every rank.
[[nodiscard]] std::unique_ptr<Bootstrap> meet_by_all_gather(int rank, int size, const AllGatherFunction& all_gather,
                                                            const Environment& environment,
                                                            std::chrono::milliseconds patience);

}  // namespace moelink
