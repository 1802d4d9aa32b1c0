#include "all_reduce/nccl_all_reduce.hpp"

#include "base/text.hpp"
#include "moelink/error.hpp"

#if MOELINK_HAVE_NCCL

#include <algorithm>
#include <optional>
#include <utility>

#include "all_reduce/collective_watch.hpp"
#include "all_reduce/eager_calls.hpp"
#include "all_reduce/nccl_group.hpp"
#include "base/deadline.hpp"
#include "comm/agree.hpp"
#include "comm/communicator_state.hpp"
#include "moelink/buffer.hpp"
#include "runtime/cuda_stream.hpp"

namespace moelink {
namespace {

ncclDataType_t nccl_type(DataType type) {
  switch (type) {
    case DataType::bfloat16:
      return ncclBfloat16;
    case DataType::float16:
      return ncclFloat16;
    case DataType::float32:
      return ncclFloat32;
    case DataType::bytes:
      break;
  }
  throw Error(ErrorCode::invalid_argument, "bytes have no sum");
}

/// Rank 0's, known to all.
ncclUniqueId agreed_id(const Communicator& communicator) {
  Bootstrap& bootstrap = *communicator.state().bootstrap;
  ncclUniqueId id{};
  agree_over_ranks(
      bootstrap, "AllReduce: NCCL",
      [&] {
        const NcclLibrary& nccl = NcclLibrary::get();
        if (communicator.rank() != 0) {
          return;
        }
        const CudaContextScope scope(communicator.device().ordinal());
        if (const ncclResult_t result = nccl.get_unique_id(&id); result != ncclSuccess) {
          throw Error(ErrorCode::system, text("ncclGetUniqueId failed: ", nccl.get_error_string(result),
                                              "; NCCL_SOCKET_IFNAME chooses its interface, NCCL_DEBUG=INFO says more"));
        }
      },
      communicator.deadline());
  return all_gather_value(bootstrap, "AllReduce: NCCL id", id, communicator.deadline()).front();
}

}  // namespace

struct NcclAllReduce::Impl {
  Communicator communicator;
  DataType type;
  EagerCalls calls;
  std::unique_ptr<NcclGroup> group;
  std::unique_ptr<CollectiveWatch> watch;
  FaultBoard::Subscription subscription;  // goes first: its listener wakes the watch

  Impl(const Communicator& members, DataType element_type)
      : communicator(members), type(element_type), calls(members.device()) {}
  ~Impl() {
    subscription = {};
    watch.reset();
    try {
      const CudaContextScope scope(communicator.device().ordinal());
      group.reset();
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): no context is left, and nothing of the group's in it
    }
  }

  void join() {
    const ncclUniqueId id = agreed_id(communicator);
    agree_over_ranks(
        bootstrap(), "AllReduce: joining NCCL",
        [&] {
          const CudaContextScope scope(communicator.device().ordinal());
          group = std::make_unique<NcclGroup>(NcclLibrary::get(),
                                              NcclGroup::Membership{.rank = communicator.rank(),
                                                                    .size = communicator.size(),
                                                                    .id = id,
                                                                    .deadline = communicator.deadline(),
                                                                    .check = [this] { communicator.check(); }});
          start_watch();
        },
        communicator.deadline());
    subscription = bootstrap().faults().subscribe([this](const GroupFault&) { watch->group_failed(); });
  }

  void start_watch() {
    watch = std::make_unique<CollectiveWatch>(
        CollectiveWatch::Duties{.deadline = communicator.deadline(),
                                .longest_running = [this] { return calls.longest_running(); },
                                .report_late = [this](auto running) { report_late(running); },
                                .abort =
                                    [this] {
                                      const CudaContextScope scope(communicator.device().ordinal());
                                      group->abort();
                                    }});
  }

  [[nodiscard]] Bootstrap& bootstrap() const { return *communicator.state().bootstrap; }

  void report_late(std::chrono::milliseconds running) const {
    bootstrap().abort({.code = ErrorCode::timeout,
                       .rank = communicator.rank(),
                       .sentence = text("AllReduce by NCCL: a call of rank ", communicator.rank(), " has run for ",
                                        to_string(running), "; a rank is missing from it")});
  }

  void enqueue(const void* input, void* output, std::int64_t count, StreamView stream) {
    const CUstream cuda_stream = cuda_stream_of(stream);
    const CudaContextScope scope(communicator.device().ordinal());
    try {
      calls.follow(cuda_stream, [&] {
        group->all_reduce(input, output, static_cast<std::size_t>(count), nccl_type(type), cuda_stream);
      });
    } catch (const Error& error) {  // the other ranks are in this call, or will be
      bootstrap().abort({.code = error.code(), .rank = communicator.rank(), .sentence = error.what()});
      throw;
    }
  }

  /// NCCL connects at the first call that takes a path; which path depends on the size. So that nothing is lazy later,
  /// one call of each order of magnitude is made now.
  void warm_up(std::int64_t max_elements) {
    constexpr std::int64_t kMostBytes = std::int64_t{16} << 20;
    const auto element_bytes = static_cast<std::int64_t>(size_of(type));
    const std::int64_t most = std::min(max_elements, kMostBytes / element_bytes);
    std::optional<Stream> stream;
    Buffer buffer;
    agree_over_ranks(  // all before the first call: nobody allocates while another rank's kernel waits
        bootstrap(), "AllReduce: warming up NCCL",
        [&] {
          stream.emplace(communicator.device());
          buffer = Buffer(communicator.device(), static_cast<std::size_t>(most * element_bytes));
          fill_bytes(buffer.data(), 0, buffer.size_bytes(), *stream);
        },
        communicator.deadline());
    for (std::int64_t count = 1; count < most; count *= 16) {
      enqueue(buffer.data(), buffer.data(), count, *stream);
    }
    enqueue(buffer.data(), buffer.data(), most, *stream);
    stream->synchronize();
  }
};

NcclAllReduce::NcclAllReduce(const Communicator& communicator, const AllReduceConfig& config)
    : impl_(std::make_unique<Impl>(communicator, config.type)) {
  impl_->join();
  impl_->warm_up(config.max_elements);
  check();
}

NcclAllReduce::~NcclAllReduce() = default;

void NcclAllReduce::run(const AllReduceArgs& args, StreamView stream) {
  impl_->enqueue(args.input, args.output, args.num_elements, stream);
}

void NcclAllReduce::check() {
  impl_->communicator.check();
  if (const auto error = impl_->group->error()) {
    impl_->bootstrap().abort({.code = ErrorCode::peer,
                              .rank = impl_->communicator.rank(),
                              .sentence = text("AllReduce of rank ", impl_->communicator.rank(), ": ", *error)});
    impl_->communicator.check();
  }
}

std::string NcclAllReduce::describe() const { return "nccl " + NcclLibrary::get().version(); }

}  // namespace moelink

#else

namespace moelink {

struct NcclAllReduce::Impl {};

NcclAllReduce::NcclAllReduce(const Communicator&, const AllReduceConfig&) {
  throw Error(ErrorCode::unsupported,
              "this library was built without NCCL (nccl.h or the CUDA toolkit was not found at configure time), which "
              "all-reduce between nodes needs");
}
NcclAllReduce::~NcclAllReduce() = default;
void NcclAllReduce::run(const AllReduceArgs&, StreamView) {}
void NcclAllReduce::check() {}
std::string NcclAllReduce::describe() const { return "nccl"; }

}  // namespace moelink

#endif
