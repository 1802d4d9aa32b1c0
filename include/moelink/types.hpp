// Vocabulary types of the public API. Host-only C++20; no CUDA headers are needed to use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace moelink {

/// Element type of a matrix. `bytes` marks opaque rows: they are moved, never computed on.
enum class DataType : std::uint8_t { bfloat16, float16, float32, bytes };

/// Element type of expert ids.
enum class IndexType : std::uint8_t { int32, int64 };

/// Where dispatch puts rows.
///  - packed:  rows of local expert e are contiguous from offsets[e]; each start is a multiple of the alignment.
///  - batched: [num_local_experts, capacity, hidden]; expert e starts at e * capacity.
enum class Layout : std::uint8_t { packed, batched };

/// Who multiplies by the routing weights.
///  - on_combine: combine sums weight * row (default).
///  - on_input:   dispatch writes weight * row (rounded to the payload type); combine sums plainly.
///  - none:       nobody; combine sums plainly.
enum class WeightMode : std::uint8_t { on_combine, on_input, none };

/// Low-precision block formats (docs/low-precision.md): neighbouring elements of a row share a scale.
///  - fp8, fp8_pow2: e4m3, an fp32 scale for 128 elements; with fp8_pow2 scales are powers of two.
///  - mxfp8, mxfp4:  e4m3, e2m1, an e8m0 scale for 32 elements (OCP microscaling).
///  - nvfp4:         e2m1, an e4m3 scale for 16 elements, and an fp32 scale for the tensor that the caller supplies.
enum class Quantization : std::uint8_t { none, fp8, fp8_pow2, mxfp8, mxfp4, nvfp4 };

/// How rows reach their experts.
///  - automatic:       local for one rank; tensor_parallel if the group replicates its inputs; nvlink if every rank can
///                     map every other's memory; else p2p.
///  - local:           all experts are here.
///  - tensor_parallel: every rank passes the same tokens, ids and weights; each keeps the experts it owns, and combine
///                     sums over the ranks. One node.
///  - nvlink:          every rank (or group of tp_size ranks) passes tokens of its own; rows travel by stores to peers.
///  - p2p:             the same across nodes: puts between them, stores inside one.
enum class Mode : std::uint8_t { automatic, local, tensor_parallel, nvlink, p2p };

/// How the ranks of mode tensor_parallel sum.
///  - automatic: by number of ranks and size of the sums (docs/tensor-parallel.md).
///  - push:      one launch combines and sums; partial sums go to every rank in lines that carry their epoch. Few tokens.
///  - pull:      one launch; partial sums are staged, and every rank loads those of all.
///  - two_shot:  one launch; every rank sums its shard and stores the rounded result to all.
///  - nvls:      two_shot through the switch's multicast; needs ExchangeConfig::deterministic = false.
///  - separate:  a launch that combines, then one that sums. Many tokens.
enum class TensorParallelSum : std::uint8_t { automatic, push, pull, two_shot, nvls, separate };

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(DataType type) noexcept {
  switch (type) {
    case DataType::bfloat16:
    case DataType::float16:
      return 2;
    case DataType::float32:
      return 4;
    case DataType::bytes:
      return 1;
  }
  return 0;
}

/// Bytes of one index.
[[nodiscard]] constexpr std::size_t size_of(IndexType type) noexcept { return type == IndexType::int32 ? 4 : 8; }

[[nodiscard]] constexpr std::string_view name_of(DataType type) noexcept {
  switch (type) {
    case DataType::bfloat16:
      return "bf16";
    case DataType::float16:
      return "fp16";
    case DataType::float32:
      return "fp32";
    case DataType::bytes:
      return "bytes";
  }
  return "?";
}

[[nodiscard]] constexpr std::string_view name_of(IndexType type) noexcept {
  return type == IndexType::int32 ? "int32" : "int64";
}

[[nodiscard]] constexpr std::string_view name_of(Layout layout) noexcept {
  return layout == Layout::packed ? "packed" : "batched";
}

[[nodiscard]] constexpr std::string_view name_of(WeightMode mode) noexcept {
  switch (mode) {
    case WeightMode::on_combine:
      return "on_combine";
    case WeightMode::on_input:
      return "on_input";
    case WeightMode::none:
      return "none";
  }
  return "?";
}

[[nodiscard]] constexpr std::string_view name_of(Quantization format) noexcept {
  switch (format) {
    case Quantization::none:
      return "none";
    case Quantization::fp8:
      return "fp8";
    case Quantization::fp8_pow2:
      return "fp8_pow2";
    case Quantization::mxfp8:
      return "mxfp8";
    case Quantization::mxfp4:
      return "mxfp4";
    case Quantization::nvfp4:
      return "nvfp4";
  }
  return "?";
}

[[nodiscard]] constexpr std::string_view name_of(Mode mode) noexcept {
  switch (mode) {
    case Mode::automatic:
      return "automatic";
    case Mode::local:
      return "local";
    case Mode::tensor_parallel:
      return "tp";
    case Mode::nvlink:
      return "nvlink";
    case Mode::p2p:
      return "p2p";
  }
  return "?";
}

[[nodiscard]] constexpr std::string_view name_of(TensorParallelSum sum) noexcept {
  switch (sum) {
    case TensorParallelSum::automatic:
      return "automatic";
    case TensorParallelSum::push:
      return "push";
    case TensorParallelSum::pull:
      return "pull";
    case TensorParallelSum::two_shot:
      return "two_shot";
    case TensorParallelSum::nvls:
      return "nvls";
    case TensorParallelSum::separate:
      return "separate";
  }
  return "?";
}

/// A row-major matrix in the memory of one device. A view: it never owns, and the memory must outlive the stream work
/// that uses it. `row_stride_bytes` 0 means dense (columns * element size).
template <class Data>
struct BasicMatrixView {
  Data* data = nullptr;
  DataType type = DataType::bfloat16;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride_bytes = 0;

  [[nodiscard]] constexpr std::int64_t row_bytes() const noexcept {
    return columns * static_cast<std::int64_t>(size_of(type));
  }
  [[nodiscard]] constexpr std::int64_t stride_bytes() const noexcept {
    return row_stride_bytes != 0 ? row_stride_bytes : row_bytes();
  }
  // NOLINTNEXTLINE(google-explicit-constructor): a writable view is a readable view.
  constexpr operator BasicMatrixView<const Data>() const noexcept requires(!std::is_const_v<Data>) {
    return {data, type, rows, columns, row_stride_bytes};
  }
};

using MatrixView = BasicMatrixView<const void>;   ///< to read
using MutableMatrixView = BasicMatrixView<void>;  ///< to write

/// Expert ids, dense [num_tokens, top_k], int32 or int64. -1 means "no expert".
struct ExpertIdsView {
  const void* data = nullptr;
  IndexType type = IndexType::int32;
};

}  // namespace moelink
