// jit/disk_cache.hpp
#include "jit/disk_cache.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <iterator>

#include "support/temporary_directory.hpp"

namespace moelink {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKey = "sources abc\nnvrtc 13.0\nexpression moelink::entry<K, S{1}>\n";

CompiledKernel sample(char fill = 'x', std::size_t bytes = 1000) {
  return {.lowered_name = "_ZN7moelink5entry",
          .cubin = std::string(bytes, fill),
          .usage = {.registers = 40, .stack_bytes = 0, .spill_store_bytes = 0, .spill_load_bytes = 0}};
}

bool equal(const CompiledKernel& a, const CompiledKernel& b) {
  return a.lowered_name == b.lowered_name && a.cubin == b.cubin && a.usage == b.usage;
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::size_t num_files(const fs::path& directory) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

class DiskCacheTest : public testing::Test {
 protected:
  [[nodiscard]] fs::path directory() const { return temporary_.path() / "cache"; }
  [[nodiscard]] fs::path file() const { return directory() / DiskCache::file_name(kKey); }
  [[nodiscard]] DiskCache cache() const { return DiskCache(directory().string()); }

  test::TemporaryDirectory temporary_;
};

TEST_F(DiskCacheTest, WhatWasStoredIsFoundByAnotherProcess) {
  EXPECT_FALSE(cache().find(kKey));
  EXPECT_TRUE(cache().store(kKey, sample()));
  const auto found = cache().find(kKey);
  ASSERT_TRUE(found);
  EXPECT_TRUE(equal(*found, sample()));
  EXPECT_EQ(found->origin, KernelOrigin::disk);
}

TEST_F(DiskCacheTest, DirectoryAndFileArePrivate) {
  const DiskCache deep((directory() / "a" / "b").string());
  ASSERT_TRUE(deep.usable()) << deep.reason();
  ASSERT_TRUE(cache().store(kKey, sample()));
  for (const fs::path& path : {directory(), directory() / "a", directory() / "a" / "b"}) {
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all) << path;
  }
  EXPECT_EQ(fs::status(file()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(DiskCacheTest, EveryFlippedByteIsNoticed) {
  ASSERT_TRUE(cache().store(kKey, sample('x', 16)));
  const std::string good = read(file());
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    write(file(), bad);
    EXPECT_FALSE(cache().find(kKey)) << "byte " << i;
  }
  write(file(), good);
  EXPECT_TRUE(cache().find(kKey));
}

TEST_F(DiskCacheTest, EveryTruncationIsNoticed) {
  ASSERT_TRUE(cache().store(kKey, sample('x', 16)));
  const std::string good = read(file());
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    write(file(), good.substr(0, bytes));
    EXPECT_FALSE(cache().find(kKey)) << bytes << " bytes";
  }
  write(file(), good + "x");
  EXPECT_FALSE(cache().find(kKey)) << "one byte more";
}

TEST_F(DiskCacheTest, CorruptEntryIsReplaced) {
  const DiskCache cache = this->cache();
  ASSERT_TRUE(cache.store(kKey, sample('x')));
  write(file(), "garbage");
  EXPECT_FALSE(cache.find(kKey));
  EXPECT_TRUE(cache.store(kKey, sample('y')));
  ASSERT_TRUE(cache.find(kKey));
  EXPECT_TRUE(equal(*cache.find(kKey), sample('y')));
}

TEST_F(DiskCacheTest, EntryUnderTheNameOfAnotherKeyIsNotTaken) {
  ASSERT_TRUE(cache().store(kKey, sample()));
  fs::rename(file(), directory() / DiskCache::file_name("another key"));
  EXPECT_FALSE(cache().find("another key"));
}

TEST_F(DiskCacheTest, DirectoryOfAnotherUserIsNotUsed) {
  ASSERT_TRUE(cache().store(kKey, sample()));
  const DiskCache foreign(directory().string(), geteuid() + 1);
  EXPECT_FALSE(foreign.usable());
  EXPECT_NE(foreign.reason().find("belongs to user " + std::to_string(geteuid())), std::string::npos);
  EXPECT_FALSE(foreign.find(kKey));
  EXPECT_FALSE(foreign.store(kKey, sample()));
}

TEST_F(DiskCacheTest, DirectoryThatOthersCanWriteIsNotUsed) {
  ASSERT_TRUE(cache().store(kKey, sample()));
  for (const fs::perms others : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(directory(), fs::perms::owner_all | others);
    EXPECT_FALSE(cache().usable());
    EXPECT_NE(cache().reason().find("chmod 700"), std::string::npos);
    EXPECT_FALSE(cache().find(kKey));
  }
}

TEST_F(DiskCacheTest, FileThatOthersCanWriteIsNotTaken) {
  ASSERT_TRUE(cache().store(kKey, sample()));
  fs::permissions(file(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_FALSE(cache().find(kKey));
}

TEST_F(DiskCacheTest, LinkInPlaceOfAFileIsNotFollowed) {
  ASSERT_TRUE(cache().store(kKey, sample()));
  fs::rename(file(), temporary_.path() / "elsewhere");
  fs::create_symlink(temporary_.path() / "elsewhere", file());
  EXPECT_FALSE(cache().find(kKey));
}

TEST_F(DiskCacheTest, PipeInPlaceOfAFileDoesNotHang) {
  const DiskCache cache = this->cache();
  ASSERT_EQ(mkfifo(file().c_str(), 0600), 0);
  EXPECT_FALSE(cache.find(kKey));
}

TEST_F(DiskCacheTest, DirectoryThatCannotBeMadeOnlyCostsTheCache) {
  write(temporary_.path() / "file", "");
  for (const std::string& path :
       {(temporary_.path() / "file" / "cache").string(), std::string("/proc/moelink/cache")}) {
    const DiskCache cache(path);
    EXPECT_FALSE(cache.usable());
    EXPECT_FALSE(cache.reason().empty());
    EXPECT_FALSE(cache.store(kKey, sample()));
    EXPECT_FALSE(cache.find(kKey));
  }
}

TEST_F(DiskCacheTest, NoDirectoryMeansNoCache) {
  const DiskCache none((std::string()));
  EXPECT_FALSE(none.usable());
  EXPECT_FALSE(none.store(kKey, sample()));
}

// Runs `body` in a child process; true if it returned true.
template <class Body>
bool in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(body() ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(DiskCacheTest, ReadOnlyDirectoryIsReadAndNotWritten) {
  ASSERT_TRUE(cache().store(kKey, sample()));
  const fs::path path = directory();
  if (geteuid() == 0) {  // whom permissions do not bind: become somebody whom they do
    constexpr uid_t kNobody = 65534;
    ASSERT_EQ(chown(temporary_.path().c_str(), kNobody, kNobody) | chown(path.c_str(), kNobody, kNobody) |
                  chown(file().c_str(), kNobody, kNobody),
              0);
  }
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_TRUE(in_child([&] {
    if (geteuid() == 0 && setuid(65534) != 0) {
      return false;
    }
    const DiskCache cache(path.string());
    return cache.find(kKey).has_value() && !cache.store("another key", sample());
  }));
  fs::permissions(path, fs::perms::owner_all);
  EXPECT_EQ(num_files(path), 1u);
}

TEST_F(DiskCacheTest, ReadersNeverSeeHalfOfWhatOtherProcessesWrite) {
  const DiskCache cache = this->cache();
  ASSERT_TRUE(cache.store(kKey, sample('a', 200'000)));
  constexpr int kWriters = 3;
  std::array<pid_t, kWriters> writers{};
  for (pid_t& writer : writers) {
    writer = fork();
    if (writer == 0) {
      bool ok = true;
      for (int i = 0; i < 20; ++i) {
        ok = cache.store(kKey, sample(static_cast<char>('a' + i), 200'000)) && ok;
      }
      _exit(ok ? 0 : 1);
    }
  }
  for (int i = 0; i < 60; ++i) {
    const auto found = cache.find(kKey);
    ASSERT_TRUE(found) << "read " << i;
    EXPECT_TRUE(equal(*found, sample(found->cubin[0], 200'000)));
  }
  for (const pid_t writer : writers) {
    int status = 1;
    waitpid(writer, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(num_files(directory()), 1u) << "a temporary file was left behind";
}

TEST_F(DiskCacheTest, WhatAKilledWriterLeftBehindIsRemovedOnceItIsOld) {
  ASSERT_TRUE(cache().usable());
  write(directory() / ".writing-1", "old");
  write(directory() / ".writing-2", "another process writes this now");
  fs::last_write_time(directory() / ".writing-1", fs::file_time_type::clock::now() - std::chrono::hours(2));
  ASSERT_TRUE(cache().usable());
  EXPECT_FALSE(fs::exists(directory() / ".writing-1"));
  EXPECT_TRUE(fs::exists(directory() / ".writing-2"));
}

}  // namespace
}  // namespace moelink
