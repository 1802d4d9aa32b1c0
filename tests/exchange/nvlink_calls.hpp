// Host ranks that dispatch and combine again and again, from memory that was filled once: for reuse and for processes.
#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "exchange/ranks_case.hpp"

namespace moelink::test {

/// Calls of every kind that raises no data error: any number of tokens, none, skewed, repeated and unused experts.
inline std::vector<RanksCall> clean_calls(const RanksShape& shape, int count) {
  constexpr Routes kClean[] = {Routes::uniform, Routes::one_rank, Routes::holes, Routes::duplicates,
                               Routes::one_expert};
  std::vector<RanksCall> calls;
  for (int i = 0; i < count; ++i) {
    std::vector<std::int64_t> tokens;
    if (i % 4 == 3) tokens.assign(static_cast<std::size_t>(shape.num_sources()), i % 8 == 3 ? 0 : shape.max_tokens);
    calls.emplace_back(shape, kClean[i % std::size(kClean)], static_cast<unsigned>(i), tokens);
  }
  return calls;
}

/// One rank's side of such calls, on the host: any memory may be passed there.
class CallLoop {
 public:
  /// `shared`: a stream that others use, too.
  CallLoop(const Communicator& communicator, const RanksShape& shape, const std::vector<RanksCall>& calls,
           std::shared_ptr<Stream> shared = nullptr)
      : exchange(communicator, shape.config()),
        stream_(shared != nullptr ? std::move(shared)
                                  : std::make_shared<Stream>(Device::host(), Stream::Options{.num_threads = 1})),
        stream(*stream_),
        calls_(calls),
        rank_(communicator.rank()),
        source_(rank_ / shape.tp_size) {
    for (const RanksCall& call : calls) {
      std::vector<std::int32_t> ids;
      for (const std::int64_t id : call.in.sources[source_].ids) ids.push_back(static_cast<std::int32_t>(id));
      ids_.push_back(std::move(ids));
    }
  }

  /// Enqueues call `which`; its result goes to slot `slot`, which grows now and then.
  void enqueue(int which, std::size_t slot, bool split) {
    const RanksCall& call = calls_[static_cast<std::size_t>(which)];
    const RanksShape& shape = call.shape;
    const reference::SourceInput& from = call.in.sources[source_];
    if (outputs_.size() <= slot) outputs_.resize(slot + 1);
    outputs_[slot].assign(call.output[source_].size() + 16, 0xa5);
    which_.resize(outputs_.size());
    which_[slot] = which;
    const DispatchArgs dispatch{.tokens = {.data = call.tokens[source_].data(),
                                           .type = shape.payload.type,
                                           .rows = from.num_tokens,
                                           .columns = shape.hidden},
                                .expert_ids = {.data = ids_[static_cast<std::size_t>(which)].data()},
                                .weights = from.weights.data()};
    const CombineArgs combine{.expert_output = {.data = call.expert_output[rank_].data(),
                                                .type = shape.combine.expert_output,
                                                .rows = call.routing[rank_].rows.offsets.back(),
                                                .columns = shape.hidden},
                              .output = {.data = outputs_[slot].data(),
                                         .type = shape.combine.output,
                                         .rows = from.num_tokens,
                                         .columns = shape.hidden}};
    if (split) {
      (void)exchange.dispatch_receive(exchange.dispatch_send(dispatch, stream), stream);
      exchange.combine_receive(exchange.combine_send(combine, stream), stream);
    } else {
      (void)exchange.dispatch(dispatch, stream);
      exchange.combine(combine, stream);
    }
  }

  /// Waits; results that are not what the reference says.
  [[nodiscard]] int count_wrong() {
    stream.synchronize();
    exchange.check();
    int wrong = 0;
    for (std::size_t slot = 0; slot < outputs_.size(); ++slot) {
      const Bytes& expected = calls_[static_cast<std::size_t>(which_[slot])].output[source_];
      wrong += std::memcmp(outputs_[slot].data(), expected.data(), expected.size()) == 0 ? 0 : 1;
    }
    return wrong;
  }

  Exchange exchange;

 private:
  std::shared_ptr<Stream> stream_;

 public:
  Stream& stream;

 private:
  const std::vector<RanksCall>& calls_;
  int rank_;
  int source_;
  std::vector<std::vector<std::int32_t>> ids_;
  std::vector<Bytes> outputs_;
  std::vector<int> which_;
};

}  // namespace moelink::test
