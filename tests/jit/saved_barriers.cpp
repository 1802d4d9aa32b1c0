#include "jit/saved_barriers.hpp"

#include <elf.h>

#include <cstring>
#include <set>

#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink::test {
namespace {

// One instruction of sm_90 or sm_100. Its fields: as nvdisasm shows them.
struct Instruction {
  std::uint64_t low;
  std::uint64_t high;

  static constexpr std::size_t kBytes = 16;
  static constexpr std::uint64_t kSync = 0x145;      // BSSY
  static constexpr std::uint64_t kYield = 0x146;     // YIELD
  static constexpr std::uint64_t kBranch = 0x147;    // BRA
  static constexpr std::uint64_t kSave = 0x155;      // BMOV.32 register, barrier
  static constexpr std::uint64_t kRestore = 0x156;   // BMOV.32 barrier, register
  static constexpr std::uint64_t kNoRegister = 255;  // RZ: only clears, before a call

  static Instruction at(std::string_view code, std::size_t index) {
    Instruction instruction{};
    std::memcpy(&instruction, code.data() + index * kBytes, kBytes);
    return instruction;
  }
  /// Without the form of its operands.
  [[nodiscard]] std::uint64_t opcode() const { return low & 0x1ff; }
  [[nodiscard]] bool saves_barrier() const { return opcode() == kSave && (low >> 16U & 0xff) != kNoRegister; }
  [[nodiscard]] std::uint64_t saved_barrier() const { return low >> 24U & 0xf; }
  [[nodiscard]] std::uint64_t begun_barrier() const { return low >> 16U & 0xf; }
  /// Whether lanes may leave, come or part here: jumps, calls, and what waits for lanes.
  [[nodiscard]] bool is_control() const {
    const std::uint64_t code = opcode();
    return code >> 5U == 0x140U >> 5U && code != kSync && code != kYield && code != kSave && code != kRestore;
  }
  /// Of a branch: how many instructions it skips.
  [[nodiscard]] std::int64_t skips() const {
    const std::uint64_t words = (low >> 16U & 0xff) | low >> 34U << 8U | (high & 0x3ffff) << 38U;
    return static_cast<std::int64_t>(words << 8U) >> 10U;  // 56 bits, four words each
  }
};

// Whether the instruction at `save` is reached only from the BSSY of its barrier, with nothing between at which lanes
// part.
bool is_behind_its_sync(std::string_view code, const std::set<std::int64_t>& targets, std::int64_t save) {
  const std::uint64_t barrier = Instruction::at(code, static_cast<std::size_t>(save)).saved_barrier();
  for (std::int64_t i = save; i > 0 && !targets.contains(i);) {
    const Instruction before = Instruction::at(code, static_cast<std::size_t>(--i));
    if (before.opcode() == Instruction::kSync && before.begun_barrier() == barrier) return true;
    if (before.is_control()) return false;
  }
  return false;
}

// The bytes [offset, offset + size) of a file.
std::string_view part_of(std::string_view file, std::uint64_t offset, std::uint64_t size) {
  if (offset > file.size() || size > file.size() - offset) {
    throw Error(ErrorCode::invalid_argument,
                text("a cubin of ", file.size(), " bytes has no ", size, " bytes at ", offset, ": it is cut off"));
  }
  return file.substr(offset, size);
}

template <class T>
T read(std::string_view file, std::uint64_t offset) {
  T value;
  std::memcpy(&value, part_of(file, offset, sizeof(T)).data(), sizeof(T));
  return value;
}

}  // namespace

std::vector<std::int64_t> unsafe_barrier_saves(std::string_view code) {
  const auto count = static_cast<std::int64_t>(code.size() / Instruction::kBytes);
  std::set<std::int64_t> targets;
  for (std::int64_t i = 0; i < count; ++i) {
    const Instruction instruction = Instruction::at(code, static_cast<std::size_t>(i));
    if (instruction.opcode() == Instruction::kBranch) targets.insert(i + 1 + instruction.skips());
  }
  std::vector<std::int64_t> unsafe;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!Instruction::at(code, static_cast<std::size_t>(i)).saves_barrier()) continue;
    if (!is_behind_its_sync(code, targets, i)) unsafe.push_back(i * static_cast<std::int64_t>(Instruction::kBytes));
  }
  return unsafe;
}

std::string describe_unsafe_barrier_saves(std::string_view cubin) {
  constexpr std::string_view kCode = ".text.";
  const auto header = read<Elf64_Ehdr>(cubin, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) throw Error(ErrorCode::invalid_argument, "this is no cubin");
  const auto section = [&](std::uint64_t i) {
    return read<Elf64_Shdr>(cubin, header.e_shoff + i * sizeof(Elf64_Shdr));
  };
  const Elf64_Shdr names = section(header.e_shstrndx);
  const std::string_view all_names = part_of(cubin, names.sh_offset, names.sh_size);
  std::string description;
  bool has_code = false;
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr here = section(i);
    std::string_view name = part_of(all_names, here.sh_name, all_names.size() - here.sh_name);
    name = name.substr(0, name.find('\0'));
    if (!name.starts_with(kCode)) continue;
    has_code = true;
    const auto unsafe = unsafe_barrier_saves(part_of(cubin, here.sh_offset, here.sh_size));
    if (unsafe.empty()) continue;
    description += text(name.substr(kCode.size()), ":");
    for (const std::int64_t offset : unsafe) description += text(" ", offset);
    description += "\n";
  }
  if (!has_code) throw Error(ErrorCode::invalid_argument, "this cubin has no code: no section is called .text.*");
  return description;
}

}  // namespace moelink::test
