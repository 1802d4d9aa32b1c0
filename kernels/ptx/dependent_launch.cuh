// Programmatic dependent launch: a kernel starts while the one before it in the stream still runs. sm_90 and later; on
// the host launches follow each other and both do nothing.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

/// Waits until the kernels this one depends on are complete and their writes visible. Before it, touch nothing that
/// they write or read: no epoch, no peer's memory.
MOELINK_DEVICE void wait_for_previous_launch() {
#if MOELINK_ON_DEVICE
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the next kernel start once every block has called this or ended. It says nothing about memory: the next kernel
/// still waits for the end of this one before it reads its results.
MOELINK_DEVICE void allow_next_launch() {
#if MOELINK_ON_DEVICE
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace moelink
