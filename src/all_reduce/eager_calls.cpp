#include "all_reduce/eager_calls.hpp"

#if MOELINK_HAVE_CUDA

#include <algorithm>

#include "moelink/error.hpp"

namespace moelink {
namespace {

bool is_captured(const CudaDriver& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check_cuda(driver.stream_is_capturing(stream, &status), "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace

EagerCalls::EagerCalls(Device device) : device_(device) {
  const CudaDriver& driver = CudaDriver::get();
  const CudaContextScope scope(device.ordinal());
  for (Call& call : calls_) {
    check_cuda(driver.event_create(&call.begun, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    check_cuda(driver.event_create(&call.ended, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  }
}

EagerCalls::~EagerCalls() {
  try {
    const CudaDriver& driver = CudaDriver::get();
    const CudaContextScope scope(device_.ordinal());
    for (const Call& call : calls_) {
      driver.event_destroy(call.begun);
      driver.event_destroy(call.ended);
    }
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): no context is left, and no event in it
  }
}

EagerCalls::Call* EagerCalls::begin(CUstream stream) {
  const CudaDriver& driver = CudaDriver::get();
  if (is_captured(driver, stream)) {
    return nullptr;
  }
  const std::scoped_lock lock(mutex_);
  const auto is_free = [&](Call& call) {
    look(call);
    return !call.in_use;
  };
  auto* const call = std::find_if(calls_.begin(), calls_.end(), is_free);
  if (call == calls_.end()) {
    return nullptr;
  }
  check_cuda(driver.event_record(call->begun, stream), "cuEventRecord");
  return call;
}

void EagerCalls::end(Call* call, CUstream stream) {
  if (call == nullptr) {
    return;
  }
  const std::scoped_lock lock(mutex_);
  check_cuda(CudaDriver::get().event_record(call->ended, stream), "cuEventRecord");
  call->in_use = true;
  call->seen_running.reset();
}

std::chrono::milliseconds EagerCalls::longest_running() {
  const CudaContextScope scope(device_.ordinal());
  const std::scoped_lock lock(mutex_);
  auto longest = Clock::duration::zero();
  for (Call& call : calls_) {
    look(call);
    if (call.seen_running) {
      longest = std::max(longest, Clock::now() - *call.seen_running);
    }
  }
  return std::chrono::duration_cast<std::chrono::milliseconds>(longest);
}

void EagerCalls::look(Call& call) const {
  const CudaDriver& driver = CudaDriver::get();
  if (!call.in_use) {
    return;
  }
  if (driver.event_query(call.ended) != CUDA_ERROR_NOT_READY) {
    call.in_use = false;
    call.seen_running.reset();
  } else if (!call.seen_running && driver.event_query(call.begun) == CUDA_SUCCESS) {
    call.seen_running = Clock::now();
  }
}

}  // namespace moelink

#endif
