#include "transports/threads/memory.hpp"

#include "memory_conformance.hpp"

namespace moelink::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Threads, MemoryConformance,
                         ::testing::Values(MemoryCase{"host", no_obstacle,
                                                      [](int) { return make_threads_memory(Device::host()); },
                                                      write_host, read_host}),
                         case_name);

TEST(ThreadsMemory, MemoryLivesWhileAPeerMapsIt) {
  const auto transport = make_threads_memory(Device::host());
  auto owned = transport->allocate(4096);
  auto mapped = transport->map(owned->ticket());
  std::byte* data = owned->data();
  owned.reset();
  data[4095] = std::byte{9};
  EXPECT_EQ(mapped->data()[4095], std::byte{9});
}

TEST(ThreadsMemory, MappingAfterTheOwnerLeftIsAnErrorNotADanglingPointer) {
  const auto transport = make_threads_memory(Device::host());
  const MemoryTicket ticket = transport->allocate(4096)->ticket();
  EXPECT_THROW((void)transport->map({ticket.bytes, UniqueFd()}), Error);
}

}  // namespace
}  // namespace moelink::test
