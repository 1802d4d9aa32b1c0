#include "transports/host/pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/system_error.hpp"

namespace moelink {
namespace {

std::byte* map_pages(int fd, std::size_t size_bytes, int flags) {
  void* data = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    throw Error(ErrorCode::capacity, "mapping " + std::to_string(size_bytes) +
                                         " bytes of host memory failed with errno " + std::to_string(error) + " (" +
                                         std::strerror(error) +
                                         "); check `ulimit -v` and the memory limit of the container");
  }
  return static_cast<std::byte*>(data);
}

}  // namespace

std::size_t HostPages::round_up(std::size_t size_bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  // Half the address space: also what off_t can say.
  if (size_bytes == 0 || size_bytes > std::numeric_limits<std::size_t>::max() / 2 - page) {
    throw Error(ErrorCode::invalid_argument,
                "a buffer of " + std::to_string(size_bytes) + " bytes was asked for; expected 1 to 2^63 - 1");
  }
  return (size_bytes + page - 1) / page * page;
}

HostPages HostPages::anonymous(std::size_t size_bytes) {
  const std::size_t rounded = round_up(size_bytes);
  return {map_pages(-1, rounded, MAP_PRIVATE | MAP_ANONYMOUS), rounded};
}

HostPages HostPages::of_file(int fd, std::size_t size_bytes) {
  return {map_pages(fd, size_bytes, MAP_SHARED), size_bytes};
}

HostPages::~HostPages() {
  if (data_ != nullptr) {
    ::munmap(data_, size_bytes_);
  }
}

HostPages::HostPages(HostPages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}

void HostPages::store(std::size_t offset_bytes, std::span<const std::byte> source) const {
  std::memcpy(data_ + offset_bytes, source.data(), source.size());
}

void HostPages::load(std::size_t offset_bytes, std::span<std::byte> destination) const {
  std::memcpy(destination.data(), data_ + offset_bytes, destination.size());
}

}  // namespace moelink
