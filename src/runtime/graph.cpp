#include <utility>

#include "base/moved_from.hpp"
#include "moelink/error.hpp"
#include "moelink/stream.hpp"
#include "runtime/cuda_backend.hpp"

namespace moelink {

struct Graph::Impl {
  Impl(int device_ordinal, void* graph) : ordinal(device_ordinal), executable(graph) {}
  ~Impl() { cuda::destroy_graph(ordinal, executable); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  int ordinal;
  void* executable;
};

Graph::Graph(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

Graph Graph::record(StreamView stream, const std::function<void()>& body) {
  if (stream.device().is_host()) {
    throw Error(ErrorCode::unsupported, "a host stream cannot be captured in a graph; call the work directly");
  }
  return Graph(std::make_unique<Impl>(stream.device().ordinal(), cuda::record_graph(stream, body)));
}

void Graph::launch(StreamView stream) const {
  const Impl& own = not_moved_from(impl_, "Graph");
  if (stream.device() != Device::cuda(own.ordinal)) {
    throw Error(ErrorCode::invalid_argument, "a graph recorded on " + Device::cuda(own.ordinal).name() +
                                                 " was launched on a stream of " + stream.device().name());
  }
  cuda::launch_graph(own.executable, stream);
}

}  // namespace moelink
