// Tells the group of faults that kernels have met, whether or not anybody calls check().
#pragma once

#include <functional>
#include <memory>

#include "moelink/protocol/fault.hpp"

namespace moelink {

/// NOTE [one deadline]. Whoever waits in vain waits one deadline, whatever stands behind it. Inside an object the fault
/// word sees to that: every later wait of the same object ends at once. Other objects of the communicator have words of
/// their own, and the host may be in a collective call, or enqueue on. So one thread of the process looks at all
/// records every kPeriod, and ends the group of a rank whose kernel has had a fault: collective calls throw then, and
/// the group's fault asks the kernels of all its objects to give up. From the moment that a rank fell silent the others
/// have their error after the deadline of the first that waits for it, and less than a second.
///
/// One record's place in that thread's list. Nothing is told, and `tell` does not run, after it has gone.
class FaultWatch {
 public:
  /// Reads `record` until it is complete, then calls tell() once, on the thread: which must not wait, nor end a watch.
  /// `record` stays where it is. Not called for FaultKind::aborted, which follows from a fault that the group knows.
  FaultWatch(const FaultRecord& record, std::function<void()> tell);
  ~FaultWatch();
  FaultWatch(const FaultWatch&) = delete;
  FaultWatch& operator=(const FaultWatch&) = delete;

 private:
  class Thread;
  std::shared_ptr<Thread> thread_;  // of the process, while anybody watches
};

}  // namespace moelink
