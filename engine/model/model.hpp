// A model on one rank: weights, the cache of keys and values, and one step of the forward pass over a batch of rows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/files/weight_source.hpp"
#include "engine/model/batch.hpp"
#include "engine/model/config.hpp"
#include "moelink/communicator.hpp"
#include "moelink/exchange.hpp"
#include "moelink/stream.hpp"

namespace moelink::engine {

/// How ranks share the work.
enum class Parallelism : std::uint8_t {
  tensor,  ///< every rank has the same batch; attention heads and experts are split, sums go over ranks
  data     ///< every rank has a batch of its own (maybe empty); attention is whole, experts are split
};

/// Maxima of one step, and the size of the cache.
struct ModelLimits {
  std::int64_t max_rows = 256;  ///< rows of one step
  /// GPU: steps of up to so many rows never wait for the host, and can be captured; larger ones use products that are
  /// faster for many rows, and wait once per layer to learn how many rows each expert has.
  std::int64_t max_decode_rows = 64;
  std::int64_t max_logit_rows = 64;  ///< rows of one step whose logits are wanted
  std::int64_t max_sequences = 64;   ///< sequences of one step
  std::int64_t num_pages = 256;      ///< of the cache
  std::int64_t page_size = 16;       ///< positions of one page
  std::int64_t max_positions = 0;    ///< longest sequence; 0: as many as model and cache allow
};

struct ModelOptions {
  DataType type = DataType::float32;  ///< of weights and activations: float32 or bfloat16
  Parallelism parallelism = Parallelism::tensor;
  Mode mode = Mode::automatic;  ///< how rows travel to experts
  /// What they are rounded to on the way, in every mode, also where they do not leave the device; experts read the
  /// values that this stands for. The router reads what was not rounded. What experts give comes back unrounded.
  Quantization payload = Quantization::none;
  ModelLimits limits = {};
  bool keep_routing = false;   ///< expert_ids() of every layer are kept
  bool time_exchange = false;  ///< exchange_time() can be measured, and is from the start
  /// Called while weights are loaded, with the part that is done, from 0 to 1.
  std::function<void(double)> progress = {};
};

/// One thread at a time. A step is load() and run(), in stream order; every rank makes the same steps, with
/// Parallelism::data also those for which it has no rows. A row's result does not depend on what else is in its batch:
/// bit for bit on the host, where each row's sums are in an order of their own.
class Model {
 public:
  /// Collective. Reads config.json and the weights of `folder`, of which only this rank's part is read and kept. Throws
  /// invalid_argument or unsupported for files and options that cannot be used, naming file and tensor.
  Model(const Communicator& communicator, const std::filesystem::path& folder, const ModelOptions& options);
  /// The same of a configuration and weights from anywhere, which are read here and never again.
  Model(const Communicator& communicator, const ModelConfig& config, const WeightSource& weights,
        const ModelOptions& options);
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  [[nodiscard]] const ModelConfig& config() const noexcept;
  /// With max_positions filled in.
  [[nodiscard]] const ModelLimits& limits() const noexcept;

  /// Enqueues handing the batch to the device. It is copied at once, and may change when the call returns. Not more
  /// than four loads may be under way. Throws invalid_argument, naming row and value, for a batch that does not fit:
  /// tokens outside the vocabulary, positions outside the limits or the sequence's pages, pages outside the cache, more
  /// rows or sequences than the limits.
  void load(const Batch& batch, StreamView stream);

  /// Enqueues the forward pass of what was loaded last; of this shape. With up to max_decode_rows rows it may be
  /// captured in a CUDA graph and replayed after later loads of the same shape.
  void run(const StepShape& shape, StreamView stream);

  /// [max_logit_rows, vocab_size] of float32 in device memory, dense: what the last run() found for its logit rows.
  [[nodiscard]] MatrixView logits() const;

  /// Enqueues copying the first rows of logits() to host memory: as many as `destination` holds. Where ranks of this
  /// process share the GPU it waits for the stream first: copies of all stand in one queue, and one behind a call that
  /// waits for another rank would hold up that rank's.
  void copy_logits(std::span<float> destination, StreamView stream) const;

  /// [num rows, top_k] of int32 in device memory: the experts that the last run chose in a layer, best first (needs
  /// ModelOptions::keep_routing).
  [[nodiscard]] const std::int32_t* expert_ids(std::int64_t layer) const;

  /// Microseconds that the last run spent in dispatch and in combine, over all layers (needs
  /// ModelOptions::time_exchange; the stream must have passed the run).
  struct ExchangeTime {
    double dispatch_us = 0;
    double combine_us = 0;
  };
  [[nodiscard]] ExchangeTime exchange_time() const;
  /// Whether steps from now on are measured: a step that is to be captured must not be.
  void time_exchange(bool wanted);

  /// Throws if a call of the library met a data error or a fault. Never waits.
  void check();

  /// Bytes of device memory that a page of the cache takes, over all layers.
  [[nodiscard]] std::int64_t page_bytes() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moelink::engine
