// The fake driver that the tests of one executable share: what stays by design (registries, kept memory) must not
// outlive it.
#pragma once

#include "support/fake_cuda.hpp"

namespace moelink::test {

inline FakeCuda& fake_driver() {
  static FakeCuda fake(std::vector<FakeDevice>(8, FakeDevice{.fabric = true, .multicast = true}));
  return fake;
}

}  // namespace moelink::test
