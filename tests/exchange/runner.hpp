// Runs problems through an Exchange on a device, and compares everything it returns with the reference, bit for bit.
#pragma once

#include "exchange/problem.hpp"
#include "support/device.hpp"

namespace moelink::test {

/// Rows of a matrix in device memory, `extra_stride_bytes` of canary after each.
class DeviceMatrix {
 public:
  DeviceMatrix(const Bytes& dense, DataType type, std::int64_t rows, std::int64_t columns,
               std::int64_t extra_stride_bytes, StreamView stream);

  [[nodiscard]] MutableMatrixView view() const { return view_; }
  void upload(const Bytes& dense, StreamView stream) const;
  [[nodiscard]] Bytes download(StreamView stream) const;  ///< dense; expects the canaries to be whole

 private:
  MutableMatrixView view_;
  Buffer buffer_;
};

/// All that a dispatch and its combine returned.
struct Outcome {
  std::vector<std::int64_t> offsets;
  std::vector<std::int32_t> counts;
  std::vector<std::int32_t> expert_of_row;
  std::vector<float> weight_of_row;
  std::vector<std::int64_t> source_of_row;
  Bytes rows;
  Bytes scales;
  Bytes output;
  DataErrors errors;
  friend bool operator==(const Outcome& a, const Outcome& b);  ///< pads and errors aside
};

/// The device side of one problem: inputs, outputs, and an Exchange to run it through as often as one likes.
class Runner {
 public:
  Runner(const Problem& problem, StreamView stream);
  Runner(const Problem& problem, const ExchangeConfig& config, StreamView stream);
  Runner(const Problem& problem, Exchange exchange, StreamView stream);

  [[nodiscard]] Exchange& exchange() { return exchange_; }
  [[nodiscard]] DispatchArgs dispatch_args() const;
  [[nodiscard]] CombineArgs combine_args(const ExpertBatch& batch) const;
  /// Other contents of the same shape, into the same buffers.
  void load(const Problem& problem);

  /// Dispatch, upload of the reference's expert output, combine; waits.
  Outcome run(const Expected& expected, bool reuse_routing = false);
  /// The parts of it: what `batch` and the output hold once the stream has passed.
  [[nodiscard]] Outcome read(const ExpertBatch& batch) const;
  void load_expert_output(const Expected& expected);

 private:
  Problem problem_;
  StreamView stream_;
  Exchange exchange_;
  DeviceMatrix tokens_, scales_, rows_, expert_output_, shared_, output_;
  Buffer ids_, weights_, num_tokens_;
};

/// Expects what `problem` has to give.
void expect_same(const Outcome& outcome, const Problem& problem, const Expected& expected);

/// All of it: one problem, through an Exchange of its own.
void check_problem(const Problem& problem, StreamView stream);

}  // namespace moelink::test
