#include "perf/common/shared_pages.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace moelink::perf {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace

SharedPages::SharedPages(std::size_t size_bytes)
    : file_(memfd_create("moelink perf", MFD_CLOEXEC)), size_bytes_(size_bytes) {
  if (file_ < 0) fail("memfd_create");
  if (ftruncate(file_, static_cast<off_t>(size_bytes)) != 0) {
    const int error = std::exchange(errno, 0);
    close(file_);
    errno = error;
    fail(fmt::format("{} bytes of shared memory", size_bytes));
  }
  map();
}

SharedPages::SharedPages(const std::string& path, std::size_t size_bytes)
    : file_(open(path.c_str(), O_RDWR | O_CLOEXEC)), size_bytes_(size_bytes) {
  if (file_ < 0) fail(path);
  map();
}

void SharedPages::map() {
  void* data = mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (data == MAP_FAILED) {
    const int error = std::exchange(errno, 0);
    close(file_);
    errno = error;
    fail(fmt::format("mapping {} bytes", size_bytes_));
  }
  data_ = static_cast<std::byte*>(data);
}

SharedPages::~SharedPages() {
  if (data_ != nullptr) munmap(data_, size_bytes_);
  if (file_ >= 0) close(file_);
}

SharedPages::SharedPages(SharedPages&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

SharedPages& SharedPages::operator=(SharedPages&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

std::string SharedPages::path() const { return fmt::format("/proc/{}/fd/{}", getpid(), file_); }

}  // namespace moelink::perf
