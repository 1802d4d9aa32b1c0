// jit/saved_barriers.hpp, on instructions as nvdisasm shows them.
#include "jit/saved_barriers.hpp"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "moelink/error.hpp"

namespace moelink::test {
namespace {

// Of a real kernel: `nvdisasm -hex`.
constexpr std::uint64_t kBssyB0 = 0x000000b000007945;
constexpr std::uint64_t kBsyncB0 = 0x0000000000007941;
constexpr std::uint64_t kSaveB0 = 0x0000000000267355;     // BMOV.32.CLEAR R38, B0
constexpr std::uint64_t kRestoreB0 = 0x0000002600007356;  // BMOV.32 B0, R38
constexpr std::uint64_t kClearB0 = 0x0000000000ff7355;    // BMOV.32.CLEAR RZ, B0
constexpr std::uint64_t kYield = 0x0000000000007946;
constexpr std::uint64_t kAdd = 0x0000000000007210;
constexpr std::uint64_t kWarpsync = 0x0000000000007948;
constexpr std::uint64_t kNextBarrierOfSync = 1U << 16U;
constexpr std::uint64_t kNextBarrierOfSave = 1U << 24U;

struct Code {
  std::string bytes;

  Code& add(std::uint64_t low, std::uint64_t high = 0) {
    bytes.append(reinterpret_cast<const char*>(&low), sizeof(low));
    bytes.append(reinterpret_cast<const char*>(&high), sizeof(high));
    return *this;
  }
  Code& branch(std::int64_t skips) {
    const auto words = static_cast<std::uint64_t>(skips * 4);
    return add(0x947U | (words & 0xffU) << 16U | (words >> 8U & 0x3fffffffU) << 34U, words >> 38U & 0x3ffffU);
  }
  Code& adds(int count) {
    for (int i = 0; i < count; ++i) add(kAdd);
    return *this;
  }
};

std::vector<std::int64_t> found(const Code& code) { return unsafe_barrier_saves(code.bytes); }
using Offsets = std::vector<std::int64_t>;

TEST(SavedBarriers, SaveBehindItsSyncIsGood) {
  EXPECT_EQ(found(Code().add(kBssyB0).add(kSaveB0)), Offsets{});
  EXPECT_EQ(found(Code().add(kBssyB0).adds(3).add(kYield).add(kSaveB0)), Offsets{});
}

TEST(SavedBarriers, SaveBehindWhichLanesMayHavePartedIsFound) {
  EXPECT_EQ(found(Code().add(kBssyB0).branch(1).add(kAdd).add(kSaveB0).add(kBssyB0)), Offsets{48});
  EXPECT_EQ(found(Code().add(kBssyB0).add(kBsyncB0).add(kSaveB0)), Offsets{32});
  EXPECT_EQ(found(Code().add(kBssyB0).add(kWarpsync).add(kSaveB0)), Offsets{32});
}

TEST(SavedBarriers, SaveWithoutASyncIsFound) { EXPECT_EQ(found(Code().adds(2).add(kSaveB0)), Offsets{32}); }

TEST(SavedBarriers, SaveOfAnOuterBarrierInALoopIsFound) {
  EXPECT_EQ(found(Code().add(kBssyB0).add(kSaveB0).add(kBssyB0).add(kBsyncB0).add(kRestoreB0).branch(-5)), Offsets{16});
  EXPECT_EQ(found(Code().add(kBssyB0).add(kAdd).add(kSaveB0).branch(-3)), Offsets{32})
      << "the loop begins between them";
  EXPECT_EQ(found(Code().add(kBssyB0).add(kAdd).add(kSaveB0).branch(-4)), Offsets{}) << "the loop begins with the sync";
}

TEST(SavedBarriers, TargetsOfLongBranchesAreKnown) {
  EXPECT_EQ(found(Code().branch(5001).adds(5000).add(kBssyB0).add(kSaveB0)), Offsets{5002 * 16});
  EXPECT_EQ(found(Code().branch(5000).adds(5000).add(kBssyB0).add(kSaveB0)), Offsets{});
  EXPECT_EQ(found(Code().add(kBssyB0).add(kSaveB0).adds(5000).branch(-5002)), Offsets{16});
}

TEST(SavedBarriers, SyncOfAnotherBarrierDoesNotCount) {
  EXPECT_EQ(found(Code().add(kBssyB0 + kNextBarrierOfSync).add(kSaveB0)), Offsets{16});
  EXPECT_EQ(found(Code().add(kBssyB0).add(kBssyB0 + kNextBarrierOfSync).add(kSaveB0)), Offsets{});
  EXPECT_EQ(found(Code().add(kBssyB0 + 9 * kNextBarrierOfSync).add(kSaveB0 + 9 * kNextBarrierOfSave)), Offsets{});
}

TEST(SavedBarriers, ClearingIsNoSave) { EXPECT_EQ(found(Code().add(kAdd).add(kClearB0)), Offsets{}); }

// A cubin of one function.
std::string cubin_of(const Code& code) {
  const std::string names("\0.text.f\0.shstrtab\0", 19);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_shnum = 3;
  header.e_shstrndx = 2;
  header.e_shoff = sizeof(header) + names.size() + code.bytes.size();
  Elf64_Shdr sections[3] = {};
  sections[1].sh_name = 1;
  sections[1].sh_offset = sizeof(header) + names.size();
  sections[1].sh_size = code.bytes.size();
  sections[2].sh_name = 9;
  sections[2].sh_offset = sizeof(header);
  sections[2].sh_size = names.size();
  std::string cubin(reinterpret_cast<const char*>(&header), sizeof(header));
  cubin += names + code.bytes;
  return cubin.append(reinterpret_cast<const char*>(sections), sizeof(sections));
}

TEST(SavedBarriers, OfACubinAreNamedByFunction) {
  EXPECT_EQ(describe_unsafe_barrier_saves(cubin_of(Code().adds(2).add(kSaveB0).add(kSaveB0))), "f: 32 48\n");
  EXPECT_EQ(describe_unsafe_barrier_saves(cubin_of(Code().add(kBssyB0).add(kSaveB0))), "");
}

TEST(SavedBarriers, OfWhatIsNoWholeCubinIsAnError) {
  const std::string cubin = cubin_of(Code().add(kAdd));
  EXPECT_THROW((void)describe_unsafe_barrier_saves(""), Error);
  EXPECT_THROW((void)describe_unsafe_barrier_saves(std::string(200, 'x')), Error);
  EXPECT_THROW((void)describe_unsafe_barrier_saves(cubin.substr(0, cubin.size() - 1)), Error);
  std::string without_code = cubin;
  without_code.replace(without_code.find(".text.f"), 7, ".data.f");
  EXPECT_THROW((void)describe_unsafe_barrier_saves(without_code), Error);
}

}  // namespace
}  // namespace moelink::test
