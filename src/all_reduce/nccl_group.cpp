#include "all_reduce/nccl_group.hpp"

#if MOELINK_HAVE_NCCL

#include <algorithm>
#include <thread>
#include <utility>

#include "base/deadline.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

constexpr std::chrono::milliseconds kLongestFarewell{5'000};

/// Waits briefly at first: NCCL needs some 20 us to enqueue, and seconds to meet.
void pause(int polls) {
  polls < 1000 ? std::this_thread::yield() : std::this_thread::sleep_for(std::chrono::microseconds(200));
}

}  // namespace

NcclGroup::NcclGroup(const NcclLibrary& nccl, Membership membership) : nccl_(nccl), membership_(std::move(membership)) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result =
      nccl_.comm_init_rank_config(&comm_, membership_.size, membership_.id, membership_.rank, &config);
  try {
    if (result != ncclSuccess && result != ncclInProgress) {
      throw Error(ErrorCode::peer, text("NCCL failed to start: ", nccl_.get_error_string(result)));
    }
    wait_until_done("for all ranks to join NCCL");
  } catch (...) {
    abort();
    throw;
  }
}

NcclGroup::~NcclGroup() {
  if (!finish()) {
    abort();
  }
}

/// Finalize flushes what NCCL's threads still send; aborting at once could keep it from a peer.
bool NcclGroup::finish() noexcept {
  if (state() != ncclSuccess) {
    return false;
  }
  {
    const std::scoped_lock lock(mutex_);
    const ncclResult_t result = nccl_.comm_finalize(comm_);
    if (result != ncclSuccess && result != ncclInProgress) {
      return false;
    }
  }
  const Deadline deadline = Deadline::after(std::min(membership_.deadline, kLongestFarewell));
  ncclResult_t now = state();
  for (int polls = 0; now == ncclInProgress && !deadline.expired(); now = state()) {
    pause(polls++);
  }
  const std::scoped_lock lock(mutex_);
  if (now != ncclSuccess || comm_ == nullptr) {
    return false;
  }
  return nccl_.comm_destroy(std::exchange(comm_, nullptr)) == ncclSuccess;
}

void NcclGroup::all_reduce(const void* input, void* output, std::size_t count, ncclDataType_t type,
                           cudaStream_t stream) {
  ncclResult_t result = ncclInvalidUsage;
  {
    const std::scoped_lock lock(mutex_);
    if (comm_ != nullptr) {
      result = nccl_.all_reduce(input, output, count, type, ncclSum, comm_, stream);
    }
  }
  if (result == ncclInProgress) {
    wait_until_done("for NCCL to enqueue an all-reduce");
  } else if (result != ncclSuccess) {
    membership_.check();  // if the group was aborted, its reason says more
    throw Error(ErrorCode::peer, text("NCCL refused an all-reduce: ", nccl_.get_error_string(result)));
  }
}

std::optional<std::string> NcclGroup::error() const {
  const ncclResult_t now = state();
  if (now == ncclSuccess || now == ncclInProgress) {
    return std::nullopt;
  }
  return text("NCCL met an error: ", nccl_.get_error_string(now));
}

void NcclGroup::abort() noexcept {
  const std::scoped_lock lock(mutex_);
  if (comm_ != nullptr) {
    nccl_.comm_abort(std::exchange(comm_, nullptr));
  }
}

/// Of the communicator; an aborted one is an error.
ncclResult_t NcclGroup::state() const {
  const std::scoped_lock lock(mutex_);
  ncclResult_t state = ncclInvalidUsage;
  if (comm_ == nullptr) {
    return state;
  }
  const ncclResult_t result = nccl_.comm_get_async_error(comm_, &state);
  return result == ncclSuccess ? state : result;
}

void NcclGroup::wait_until_done(const char* what) {
  const Deadline deadline = Deadline::after(membership_.deadline);
  for (int polls = 0;; ++polls) {
    const ncclResult_t now = state();
    if (now == ncclSuccess) {
      return;
    }
    membership_.check();
    if (now != ncclInProgress) {
      throw Error(ErrorCode::peer, text("waiting ", what, " failed: ", nccl_.get_error_string(now)));
    }
    if (deadline.expired()) {
      throw Error(ErrorCode::timeout,
                  text("rank ", membership_.rank, " waited ", to_string(membership_.deadline), " ", what));
    }
    pause(polls);
  }
}

}  // namespace moelink

#endif
