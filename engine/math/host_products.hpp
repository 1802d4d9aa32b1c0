// Products on the host, by the threads of the stream. docs/decisions has the measurements behind it.
#pragma once

#include "engine/math/panel.hpp"
#include "engine/math/products.hpp"
#include "moelink/kernel.hpp"
#include "moelink/protocol/element.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink::engine {

struct HostProductSpec {
  Element element = Element::float32;  ///< of inputs
  i32 threads = 1;
  template <class Visit>
  constexpr auto fields(Visit&& visit) const {
    return visit(element, threads);
  }
};

struct HostProductArgs {
  const float* weights;  ///< matrices in panels (kPanelWidth)
  const void* input;     ///< [rows, inputs]
  void* output;          ///< [rows, outputs]
  Element output_type;
  i64 num_matrices;
  i64 outputs;
  i64 inputs;
  i64 num_rows;        ///< of the only matrix, if there are no offsets
  const i64* offsets;  ///< null, or by matrix its first row and its number of rows
  const i32* counts;
};

/// Runs on the host alone: GPUs have a library for this.
///
/// A matrix is stored in panels (panel.hpp): [outputs / 32][inputs][32], the last one filled up with zeros; in floats,
/// whatever type its elements were rounded to. Rows in bf16 are made floats in scratch, a few at a time.
struct HostProduct {
  static constexpr const char* kName = "HostProduct";
  static constexpr const char* kHeader = "engine/math/host_products.hpp";
  using Spec = HostProductSpec;
  using Args = HostProductArgs;

  static i64 panels_of(i64 outputs) { return (outputs + kPanelWidth - 1) / kPanelWidth; }

  static constexpr i64 kRowsTogether = 8;
  static int scratch_bytes(const Spec& spec, i64 inputs) {
    return spec.element == Element::float32 ? 0 : static_cast<int>(kRowsTogether * (inputs + kPanelWidth) * 4);
  }

  static void run(const HostExec& ex, const Runtime<Spec>& spec, const Args& args);
};

class HostProducts final : public Products {
 public:
  /// Throws ErrorCode::unsupported for types other than float32 and bfloat16.
  explicit HostProducts(DataType type);

  [[nodiscard]] Weights allocate(std::int64_t num_matrices, std::int64_t outputs, std::int64_t inputs) const override;
  void fill(Weights& weights, std::int64_t matrix, std::span<const float> values) const override;
  void dense(const Weights& weights, const void* input, std::int64_t num_rows, void* output, DataType output_type,
             StreamView stream) override;
  void prepare(const Weights&) override {}
  void grouped(const Weights& weights, const RowGroups& groups, const void* input, void* output,
               StreamView stream) override;

 private:
  void launch(const HostProductArgs& args, StreamView stream) const;

  DataType type_;
  UserKernel<HostProduct> product_;
};

}  // namespace moelink::engine
