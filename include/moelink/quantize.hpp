// Rows of bf16 or fp16 to low-precision block formats, and scales to where a GEMM reads them. docs/low-precision.md has
// the formulas.
#pragma once

#include <cstdint>
#include <memory>

#include "moelink/device.hpp"
#include "moelink/export.hpp"
#include "moelink/stream.hpp"
#include "moelink/types.hpp"

namespace moelink {

/// Where the scales of a matrix of R rows with B blocks each stand.
///  - row_major:    [R][B]
///  - column_major: [B][stride], stride >= R: what Hopper's block-scaled GEMMs read.
///  - swizzled:     tiles of 128 rows by 4 blocks (NVIDIA's "128x4"), one-byte scales only: what Blackwell's tensor cores
///                  read. Rows and blocks are padded to whole tiles; pads are left alone (zero the memory once).
enum class ScaleArrangement : std::uint8_t { row_major, column_major, swizzled };

/// A matrix of scales in device memory. A view.
struct ScalesView {
  void* data = nullptr;
  ScaleArrangement arrangement = ScaleArrangement::row_major;
  std::int64_t stride = 0;  ///< in scales, from one row (column_major: block) to the next; 0: dense. swizzled: unused
};

struct QuantizerConfig {
  Quantization format = Quantization::fp8;
  DataType input = DataType::bfloat16;  ///< bfloat16 or float16
  std::int64_t columns = 0;             ///< elements of one row, a multiple of 8; the last block of a row may be short
};

/// One quantisation. Memory of the Quantizer's device; rows start at multiples of 16 bytes (input) and of
/// 8 elements' bytes (output: 8, or 4 for fp4).
struct QuantizeArgs {
  MatrixView input = {};                             ///< [num_rows, columns]
  MutableMatrixView output = {};                     ///< [num_rows, row_bytes(...)] of `bytes`
  ScalesView scales = {};                            ///< num_rows rows of num_blocks(...) scales
  const float* tensor_scale = nullptr;               ///< nvfp4: one value in device memory, above 0; null: 1
  const std::int32_t* num_rows_on_device = nullptr;  ///< optional: rows past it are left alone
};

/// Compiles its kernels at construction; after it no call allocates, compiles, synchronises or logs, and every call can
/// be captured in a CUDA graph. Calls are independent of each other. The same bits on every device.
class MOELINK_EXPORT Quantizer {
 public:
  Quantizer(Device device, const QuantizerConfig& config);
  ~Quantizer();
  Quantizer(Quantizer&&) noexcept;
  Quantizer& operator=(Quantizer&&) noexcept;

  /// Bytes of one row of elements, its blocks, and bytes of one scale.
  [[nodiscard]] static std::int64_t row_bytes(Quantization format, std::int64_t columns) noexcept;
  [[nodiscard]] static std::int64_t num_blocks(Quantization format, std::int64_t columns) noexcept;
  [[nodiscard]] static std::int64_t bytes_per_scale(Quantization format) noexcept;
  /// Bytes of the scales of `num_rows` dense rows in an arrangement, pads included.
  [[nodiscard]] static std::int64_t scale_bytes(Quantization format, std::int64_t columns, std::int64_t num_rows,
                                                ScaleArrangement arrangement) noexcept;

  /// Enqueues. Throws invalid_argument before anything is enqueued.
  void quantize(const QuantizeArgs& args, StreamView stream) const;
  /// Enqueues: scales of `num_rows` rows, row_major, to another arrangement. (Swizzling mixes rows, so that dispatch
  /// delivers row_major scales, and this follows once rows have their place. With a packed layout of alignment 128 every
  /// expert's rows are whole tiles.)
  void arrange(const ScalesView& from, const ScalesView& to, std::int64_t num_rows, StreamView stream) const;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace moelink
