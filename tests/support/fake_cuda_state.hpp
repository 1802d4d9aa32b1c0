// The insides of FakeCuda.
#pragma once

#if MOELINK_HAVE_CUDA

#include <sys/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "fake_cuda.hpp"

namespace moelink::test {

/// Physical memory or a multicast object: a memory file, found again by its inode when a descriptor comes back.
struct FakeObject {
  UniqueFd file;
  std::size_t size_bytes = 0;
  int device = 0;
  // Multicast only:
  bool is_multicast = false;
  unsigned num_devices = 0;
  std::vector<int> joined;
  std::vector<int> bound;
};

struct FakeReservation {
  std::size_t size_bytes = 0;
  std::shared_ptr<FakeObject> mapped;  ///< null while it shows nothing
};

struct FakeCudaState {
  mutable std::mutex mutex;
  std::vector<FakeDevice> devices;
  int countdown = 0;  ///< fail when it reaches 0 from 1
  CUresult failure = CUDA_SUCCESS;
  int num_calls = 0;
  std::vector<std::string> calls;
  std::string broken_rules;

  std::map<CUmemGenericAllocationHandle, std::shared_ptr<FakeObject>> handles;
  std::map<ino_t, std::weak_ptr<FakeObject>> objects;
  std::map<CUdeviceptr, FakeReservation> reservations;
  std::map<CUdeviceptr, std::shared_ptr<FakeObject>> linear;  ///< cuMemAlloc
  std::map<CUdeviceptr, std::shared_ptr<FakeObject>> ipc;     ///< cuIpcOpenMemHandle
  std::map<int, int> retained;                                ///< primary contexts, by device
  int streams = 0;
  CUmemGenericAllocationHandle next_handle = 1000;

  /// Notes a call that acquires or checks something; CUDA_SUCCESS, or what the test wants it to return.
  CUresult enter(const char* name);
  /// Notes a call that gives something back.
  void leave(const char* name) { calls.emplace_back(name); }
  void broken(const std::string& rule) { broken_rules += rule + "\n"; }
  std::shared_ptr<FakeObject> make_object(std::size_t size_bytes, int device);
  CUmemGenericAllocationHandle add_handle(std::shared_ptr<FakeObject> object);
};

/// The state of the one FakeCuda that lives.
[[nodiscard]] FakeCudaState& fake();

/// The context stack of the calling thread.
[[nodiscard]] std::vector<CUcontext>& fake_contexts();

void fill_devices(CudaDriver& driver);
void fill_memory(CudaDriver& driver);
void fill_virtual_memory(CudaDriver& driver);
void fill_multicast(CudaDriver& driver);

}  // namespace moelink::test

#endif
