#include "moelink/quantize.hpp"

#include <cstdint>
#include <limits>

#include "base/moved_from.hpp"
#include "base/refuse.hpp"
#include "base/text.hpp"
#include "launch/kernel_loader.hpp"
#include "moelink/device/quant/arrange_scales.cuh"
#include "moelink/device/quant/quantize.cuh"
#include "moelink/error.hpp"
#include "quantize/format.hpp"
#include "runtime/device_properties.hpp"
#include "runtime/host_queue.hpp"
#include "runtime/pointer_check.hpp"

namespace moelink {
namespace {

constexpr i32 kArrangeThreads = 256;
constexpr int kArrangeBlocksPerSm = 4;  // enough loads under way to fill the memory's latency
constexpr i64 kRowsAtOnce = std::numeric_limits<i32>::max();

void check_config(const QuantizerConfig& config) {
  if (format_of(config.format) == QuantFormat::none) {
    refuse(text("QuantizerConfig::format is ", name_of(config.format), "; expected a low-precision format"));
  }
  if (config.input != DataType::bfloat16 && config.input != DataType::float16) {
    refuse(text("QuantizerConfig::input is ", name_of(config.input), "; expected bf16 or fp16"));
  }
  if (config.columns < 1 || config.columns > (i64{1} << 24) || config.columns % kQuantizeUnit != 0) {
    refuse(text("QuantizerConfig::columns is ", config.columns, "; expected a multiple of ", kQuantizeUnit,
                ", 8 .. 2^24: pad the rows"));
  }
}

void check_aligned(const char* name, const void* data, i64 stride_bytes, i64 unit_bytes) {
  if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(unit_bytes) != 0) {
    refuse(text(name, " is ", data, ", which is not aligned to ", unit_bytes, " bytes; move its start"));
  }
  if (stride_bytes % unit_bytes != 0) {
    refuse(text(name, " has a row stride of ", stride_bytes, " bytes, which is not a multiple of ", unit_bytes,
                "; pad the rows to ", round_up(stride_bytes, unit_bytes)));
  }
}

void check_matrix(const char* name, const MatrixView& view, DataType type, i64 columns, i64 unit_bytes) {
  if (view.type != type) refuse(text(name, " is ", name_of(view.type), "; expected ", name_of(type)));
  if (view.columns != columns) refuse(text(name, " has ", view.columns, " columns; expected ", columns));
  if (view.rows < 0 || view.rows > kRowsAtOnce) refuse(text(name, " has ", view.rows, " rows; expected 0 .. 2^31 - 1"));
  if (view.rows != 0 && view.data == nullptr) refuse(text(name, " is null; expected ", view.rows, " rows"));
  if (view.stride_bytes() < view.row_bytes()) {
    refuse(text(name, " has a row stride of ", view.stride_bytes(), " bytes; expected at least the row, ",
                view.row_bytes(), " bytes"));
  }
  check_aligned(name, view.data, view.stride_bytes(), unit_bytes);
}

ScaleLayout layout_of(ScaleArrangement arrangement) {
  switch (arrangement) {
    case ScaleArrangement::row_major:
      return ScaleLayout::row_major;
    case ScaleArrangement::column_major:
      return ScaleLayout::column_major;
    case ScaleArrangement::swizzled:
      return ScaleLayout::swizzled;
  }
  refuse(text("ScalesView::arrangement is ", static_cast<int>(arrangement), ", which is no ScaleArrangement"));
}

/// The stride to use, in scales.
i64 check_scales(const char* name, const ScalesView& scales, i64 num_rows, i64 num_blocks, i64 bytes) {
  const ScaleLayout layout = layout_of(scales.arrangement);
  if (num_rows != 0 && scales.data == nullptr) refuse(text(name, " is null; expected scales of ", num_rows, " rows"));
  check_aligned(name, scales.data, bytes, bytes);
  if (layout == ScaleLayout::swizzled) {
    if (bytes != 1) refuse(text(name, " is swizzled, but its scales have ", bytes, " bytes; only one-byte scales are"));
    return 0;
  }
  const i64 least = layout == ScaleLayout::row_major ? num_blocks : num_rows;
  const i64 stride = scales.stride != 0 ? scales.stride : least;
  if (stride < least) refuse(text(name, " has a stride of ", stride, " scales; expected at least ", least));
  return stride;
}

}  // namespace

class Quantizer::Impl {
 public:
  Impl(Device device, const QuantizerConfig& config)
      : device_(device), config_(config), check_pointer_(device), num_sms_(DeviceProperties::of(device).num_sms) {
    check_config(config);
    const QuantFormat format = format_of(config.format);
    KernelLoader loader(device);
    spec_ = with_threads({.format = format,
                          .input = config.input == DataType::bfloat16 ? Element::bfloat16 : Element::float16,
                          .columns = static_cast<i32>(config.columns)});
    quantize_ = loader.add<Quantize>(spec_);
    arrange_ = loader.add<ArrangeScales>({.bytes = moelink::bytes_per_scale(format),
                                          .num_blocks = static_cast<i32>(quant_blocks(format, config.columns)),
                                          .threads = kArrangeThreads});
    loader.load();
  }

  void quantize(const QuantizeArgs& args, StreamView stream) {
    check_stream(stream);
    const QuantFormat format = format_of(config_.format);
    const i64 num_rows = args.input.rows;
    check_matrix("QuantizeArgs::input", args.input, config_.input, config_.columns, 16);
    check_matrix("QuantizeArgs::output", args.output, DataType::bytes, quant_bytes(format, config_.columns),
                 quant_bytes(format, kQuantizeUnit));
    if (args.output.rows < num_rows) {
      refuse(text("QuantizeArgs::output has ", args.output.rows, " rows; expected those of the input, ", num_rows));
    }
    const i64 stride = check_scales("QuantizeArgs::scales", args.scales, num_rows,
                                    quant_blocks(format, config_.columns), moelink::bytes_per_scale(format));
    check_aligned("QuantizeArgs::tensor_scale", args.tensor_scale, 4, 4);
    check_aligned("QuantizeArgs::num_rows_on_device", args.num_rows_on_device, 4, 4);
    if (num_rows == 0) return;
    check_pointer_("QuantizeArgs::input", args.input.data);
    check_pointer_("QuantizeArgs::output", args.output.data);
    check_pointer_("QuantizeArgs::scales", args.scales.data);
    check_pointer_("QuantizeArgs::tensor_scale", args.tensor_scale);
    check_pointer_("QuantizeArgs::num_rows_on_device", args.num_rows_on_device);
    quantize_.launch({.grid = quantize_grid(args, stream)},
                     {.input = args.input.data,
                      .input_stride_bytes = args.input.stride_bytes(),
                      .output = args.output.data,
                      .output_stride_bytes = args.output.stride_bytes(),
                      .scales = args.scales.data,
                      .scale_layout = layout_of(args.scales.arrangement),
                      .scale_stride = stride,
                      .tensor_scale = args.tensor_scale,
                      .device_num_rows = args.num_rows_on_device,
                      .num_rows = static_cast<i32>(num_rows)},
                     stream);
  }

  void arrange(const ScalesView& from, const ScalesView& to, i64 num_rows, StreamView stream) {
    check_stream(stream);
    const QuantFormat format = format_of(config_.format);
    const i64 num_blocks = quant_blocks(format, config_.columns);
    if (num_rows < 0 || num_rows > kRowsAtOnce) refuse(text("arrange of ", num_rows, " rows; expected 0 .. 2^31 - 1"));
    if (from.arrangement != ScaleArrangement::row_major) refuse("arrange: `from` is not row_major; it has to be");
    const i64 from_stride = check_scales("arrange: from", from, num_rows, num_blocks, moelink::bytes_per_scale(format));
    const i64 to_stride = check_scales("arrange: to", to, num_rows, num_blocks, moelink::bytes_per_scale(format));
    if (num_rows == 0) return;
    check_pointer_("arrange: from", from.data);
    check_pointer_("arrange: to", to.data);
    const i64 items = device_.is_host() ? num_rows : ceil_div<i64>(num_rows * num_blocks, kArrangeThreads);
    const i64 most = device_.is_host() ? stream.host_queue()->num_threads() : i64{num_sms_} * kArrangeBlocksPerSm;
    arrange_.launch({.grid = static_cast<int>(min_of(items, most))},
                    {.from = from.data,
                     .from_stride = from_stride,
                     .to = to.data,
                     .layout = layout_of(to.arrangement),
                     .to_stride = to_stride,
                     .num_rows = static_cast<i32>(num_rows)},
                    stream);
  }

 private:
  [[nodiscard]] int quantize_grid(const QuantizeArgs& args, StreamView stream) const {
    if (device_.is_host()) return static_cast<int>(min_of<i64>(args.input.rows, stream.host_queue()->num_threads()));
    const i64 blocks = ceil_div<i64>(args.input.rows * QuantizeTiles(spec_).per_row, spec_.threads / 32);
    // A warp a tile is fastest, but not where most of them would find that there are fewer rows.
    const bool may_be_few = args.num_rows_on_device != nullptr;
    const i64 most = may_be_few ? i64{num_sms_} * spec_.blocks_per_sm : i64{std::numeric_limits<i32>::max()};
    return static_cast<int>(min_of(blocks, most));
  }
  void check_stream(StreamView stream) const {
    if (stream.device() == device_) return;
    refuse(text("the stream is of ", stream.device().name(), ", the Quantizer of ", device_.name()));
  }

  Device device_;
  QuantizerConfig config_;
  PointerCheck check_pointer_;
  int num_sms_;
  QuantizeSpec spec_;
  Kernel<Quantize> quantize_;
  Kernel<ArrangeScales> arrange_;
};

Quantizer::Quantizer(Device device, const QuantizerConfig& config) : impl_(std::make_unique<Impl>(device, config)) {}
Quantizer::~Quantizer() = default;
Quantizer::Quantizer(Quantizer&&) noexcept = default;
Quantizer& Quantizer::operator=(Quantizer&&) noexcept = default;

std::int64_t Quantizer::row_bytes(Quantization format, std::int64_t columns) noexcept {
  return quant_bytes(format_of(format), columns);
}
std::int64_t Quantizer::num_blocks(Quantization format, std::int64_t columns) noexcept {
  return format == Quantization::none ? 0 : quant_blocks(format_of(format), columns);
}
std::int64_t Quantizer::bytes_per_scale(Quantization format) noexcept {
  return moelink::bytes_per_scale(format_of(format));
}
std::int64_t Quantizer::scale_bytes(Quantization format, std::int64_t columns, std::int64_t num_rows,
                                    ScaleArrangement arrangement) noexcept {
  const i64 blocks = num_blocks(format, columns);
  return arrangement == ScaleArrangement::swizzled ? swizzled_scale_bytes(num_rows, blocks)
                                                   : num_rows * blocks * bytes_per_scale(format);
}

void Quantizer::quantize(const QuantizeArgs& args, StreamView stream) const {
  not_moved_from(impl_, "Quantizer").quantize(args, stream);
}
void Quantizer::arrange(const ScalesView& from, const ScalesView& to, std::int64_t num_rows, StreamView stream) const {
  not_moved_from(impl_, "Quantizer").arrange(from, to, num_rows, stream);
}

}  // namespace moelink
