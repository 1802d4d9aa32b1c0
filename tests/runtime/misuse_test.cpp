// Streams, events and copies used as they cannot be: an error, never a null pointer read or a wait without end.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "moelink/buffer.hpp"
#include "moelink/error.hpp"
#include "moelink/stream.hpp"

namespace moelink {
namespace {

template <class Call>
void expect_error(ErrorCode code, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "accepted; expected " << name_of(code);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
  }
}

TEST(RuntimeMisuse, ObjectsThatWereMovedFromSaySo) {
  Stream gone(Device::host());
  const Stream kept(std::move(gone));
  expect_error(ErrorCode::out_of_order, [&] { gone.synchronize(); });
  expect_error(ErrorCode::out_of_order, [&] { (void)gone.device(); });
  Event lost(Device::host());
  Event found(std::move(lost));
  expect_error(ErrorCode::out_of_order, [&] { lost.record(kept); });
  expect_error(ErrorCode::out_of_order, [&] { lost.synchronize(); });
  expect_error(ErrorCode::out_of_order, [&] { (void)found.since(lost); });
}

TEST(RuntimeMisuse, HostViewWithoutAQueueIsRefused) {
  const StreamView none = StreamView::cuda(Device::host(), nullptr);
  char from[8] = {};
  char to[8] = {};
  Event event(Device::host());
  expect_error(ErrorCode::invalid_argument, [&] { none.synchronize(); });
  expect_error(ErrorCode::invalid_argument, [&] { copy_bytes(to, from, 8, none); });
  expect_error(ErrorCode::invalid_argument, [&] { fill_bytes(to, 0, 8, none); });
  expect_error(ErrorCode::invalid_argument, [&] { event.record(none); });
}

TEST(RuntimeMisuse, NullInCopiesAndFillsIsRefusedUnlessThereIsNothingToDo) {
  const Stream stream(Device::host(), {.num_threads = 1});
  char bytes[8] = {};
  expect_error(ErrorCode::invalid_argument, [&] { copy_bytes(bytes, nullptr, 8, stream); });
  expect_error(ErrorCode::invalid_argument, [&] { copy_bytes(nullptr, bytes, 8, stream); });
  expect_error(ErrorCode::invalid_argument, [&] { fill_bytes(nullptr, 0, 8, stream); });
  copy_bytes(nullptr, nullptr, 0, stream);
  fill_bytes(nullptr, 0, 0, stream);
  stream.synchronize();
}

TEST(RuntimeMisuse, StreamUsedInAForkedChildIsAnErrorNotAHang) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not follow a fork of a process with threads";
#endif
  const Stream stream(Device::host(), {.num_threads = 1});
  // Its thread has begun, and works: one that is just beginning holds locks of AddressSanitizer, for ever in the child.
  char first = 0;
  fill_bytes(&first, 1, 1, stream);
  stream.synchronize();
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    char byte = 0;
    int refused = 0;
    try {
      fill_bytes(&byte, 1, 1, stream);
    } catch (const Error& error) {
      refused += error.code() == ErrorCode::unsupported ? 1 : 0;
    }
    try {
      stream.synchronize();
    } catch (const Error& error) {
      refused += error.code() == ErrorCode::unsupported ? 1 : 0;
    }
    _exit(refused);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 2);
  stream.synchronize();
}

}  // namespace
}  // namespace moelink
