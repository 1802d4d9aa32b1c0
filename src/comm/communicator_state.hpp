// What the copies of one rank's Communicator share.
#pragma once

#include "moelink/communicator.hpp"

namespace moelink {

struct Communicator::State {
  int rank = 0;
  int size = 1;
  Device device = Device::host();
};

}  // namespace moelink
