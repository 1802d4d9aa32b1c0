#include "transports/shm/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include "memory_conformance.hpp"

namespace moelink::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Shm, MemoryConformance,
                         ::testing::Values(MemoryCase{"host", no_obstacle, [](int) { return make_shm_memory(); },
                                                      write_host, read_host}),
                         case_name);

TEST(ShmMemory, AFileThatCouldShrinkIsRefused) {
  // Mapped, it would turn a peer's ftruncate into our SIGBUS.
  const auto transport = make_shm_memory();
  MemoryTicket ticket = transport->allocate(4096)->ticket();
  ticket.descriptor = UniqueFd(::memfd_create("moelink-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(ticket.descriptor.get(), 4096), 0);
  EXPECT_THROW((void)transport->map(std::move(ticket)), Error);
}

TEST(ShmMemory, AFileSmallerThanItsTicketIsRefused) {
  const auto transport = make_shm_memory();
  MemoryTicket large = transport->allocate(8192)->ticket();
  large.descriptor = transport->allocate(4096)->ticket().descriptor;
  EXPECT_THROW((void)transport->map(std::move(large)), Error);
}

TEST(ShmMemory, ATicketWithoutItsDescriptorIsRefused) {
  const auto transport = make_shm_memory();
  MemoryTicket ticket = transport->allocate(4096)->ticket();
  ticket.descriptor.reset();
  EXPECT_THROW((void)transport->map(std::move(ticket)), Error);
}

}  // namespace
}  // namespace moelink::test
