#include "launch/host_kernel.hpp"

#include "base/text.hpp"

namespace moelink {

HostQueue& host_queue_of(StreamView stream, const char* kernel_name) {
  if (stream.host_queue() == nullptr) {
    throw Error(ErrorCode::invalid_argument, text(kernel_name, " runs on the host, but the stream belongs to ",
                                                  stream.device().name(), "; pass a Stream(Device::host())"));
  }
  return *stream.host_queue();
}

}  // namespace moelink
