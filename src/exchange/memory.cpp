#include "exchange/memory.hpp"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "base/text.hpp"
#include "exchange/modes/exchange_mode.hpp"

namespace moelink {
namespace {

/// Carves a block and writes down what each place is for.
class ReportingCarver {
 public:
  ReportingCarver(MemoryReport& report, std::string where) : report_(report), where_(std::move(where)) {}

  template <class T>
  Place<T> take(const char* name, const std::string& formula, i64 count) {
    const Place<T> place = carver_.take<T>(count);
    if (count != 0) report_.items.push_back({name, formula, place.bytes(), where_});
    return place;
  }

  [[nodiscard]] i64 bytes_so_far() const { return carver_.total_bytes(); }

  /// Closes the block: the padding between its places is reported as well, so that the total is what is allocated.
  i64 finish() {
    i64 used_bytes = 0;
    for (const MemoryItem& item : report_.items) used_bytes += item.where == where_ ? item.bytes : 0;
    report_.items.push_back({"padding", text("each buffer starts at a multiple of ", kPlaceAlignmentBytes, " B"),
                             carver_.total_bytes() - used_bytes, where_});
    return carver_.total_bytes();
  }

 private:
  Carver carver_;
  MemoryReport& report_;
  std::string where_;
};

std::string packed_formula(const ExchangeShape& shape, const ExchangeConfig& config) {
  if (!config.max_rows.is_worst_case()) return text("max_rows ", shape.max_rows);
  if (shape.num_local_experts == 0) return text("no expert is here: max_alignment ", config.max_alignment);
  const std::string sources = shape.num_sources == 1 ? "" : text("sources ", shape.num_sources, " * ");
  const std::string entries = text(sources, "max_tokens ", shape.max_tokens, " * top_k ", shape.top_k);
  if (config.max_alignment == 1) return entries;
  return text("roundup(", entries, " + min(experts ", shape.num_local_experts, ", entries) * (max_alignment ",
              config.max_alignment, " - 1))");
}

std::string rows_formula(const ExchangeShape& shape, const ExchangeConfig& config) {
  const std::string packed = packed_formula(shape, config);
  const std::string batched =
      text("experts ", shape.num_kernel_experts, " * max_rows_per_expert ", shape.max_rows_per_expert);
  if (shape.max_rows_per_expert == 0) return packed;
  if (shape.max_rows == 0) return batched;
  return text("max(", packed, ", ", batched, ")");
}

}  // namespace

MemoryLayout lay_out_memory(const ExchangeShape& shape, const ExchangeConfig& config, const LocalDevice& device) {
  MemoryLayout layout;
  const std::string rows = text("rows ", shape.row_capacity);
  const std::string experts = text("experts ", shape.num_kernel_experts);
  const std::string entries = text("max_tokens ", shape.max_tokens, " * top_k ", shape.top_k);

  ReportingCarver in_device(layout.report, device.is_host ? "host" : "device");
  DeviceLayout& d = layout.device;
  d.phase = in_device.take<u64>("phase", "8 B", 1);
  d.grid_barrier = in_device.take<GridBarrierWord>("grid_barrier", "8 B", 1);
  d.fault = in_device.take<u64>("fault", "8 B", 1);
  d.num_tokens_snapshot = in_device.take<i32>("num_tokens", "4 B", 1);
  d.offsets = in_device.take<i64>("offsets", text("(", experts, " + 1) * 8 B"), shape.num_kernel_experts + 1);
  d.counts = in_device.take<i32>("counts", experts + " * 4 B", shape.num_kernel_experts);
  d.expert_of_row = in_device.take<i32>("expert_of_row", rows + " * 4 B", shape.row_capacity);
  d.weight_of_row = in_device.take<float>("weight_of_row", rows + " * 4 B", shape.row_capacity);
  d.source_of_row = in_device.take<i64>("source_of_row", rows + " * 8 B", shape.row_capacity);
  d.row_of_entry = in_device.take<i32>("row_of_entry", entries + " * 4 B", shape.max_entries);
  d.weight_of_entry = in_device.take<float>("weight_of_entry", entries + " * 4 B", shape.max_entries);
  const i64 grid = device.num_sms;
  d.block_counts =
      in_device.take<u32>("block_counts", text("(blocks ", grid, " + 1) * roundup(", experts, " + 1, 4) * 4 B"),
                          prefill_workspace_words(shape.num_kernel_experts, grid));
  d.metadata_bytes = in_device.bytes_so_far();
  d.rows = in_device.take<std::byte>("rows", text(rows_formula(shape, config), " * row ", shape.max_row_bytes, " B"),
                                     config.own_rows ? shape.row_capacity * shape.max_row_bytes : 0);
  d.row_scales = in_device.take<std::byte>("row_scales", text(rows, " * scales ", shape.max_scale_bytes, " B"),
                                           shape.row_capacity * shape.max_scale_bytes);
  d.expert_output =
      in_device.take<std::byte>("expert_output", text(rows, " * output row ", shape.max_output_row_bytes, " B"),
                                config.own_expert_output ? shape.row_capacity * shape.max_output_row_bytes : 0);
  d.quantized_tokens = in_device.take<std::byte>(
      "quantized_tokens",
      text("max_tokens ", shape.max_tokens, " * quantised row with scales ", shape.max_quantized_bytes, " B"),
      shape.max_tokens * shape.max_quantized_bytes);
  d.total_bytes = in_device.finish();

  ReportingCarver in_host(layout.report, device.is_host ? "host, status" : "pinned host");
  layout.host.status = in_host.take<ExchangeStatus>("status", "6 counters * 8 B", 1);
  layout.host.fault = in_host.take<FaultRecord>("fault_record", "64 B", 1);
  layout.host.counts = in_host.take<i32>("host_counts", experts + " * 4 B", shape.num_kernel_experts);
  layout.host.total_bytes = in_host.finish();
  add_mode_memory(shape, config, device, layout.report);
  return layout;
}

std::int64_t MemoryReport::total_bytes() const noexcept {
  std::int64_t total = 0;
  for (const MemoryItem& item : items) total += item.bytes;
  return total;
}

std::string MemoryReport::to_string() const {
  std::size_t name_width = 5;
  std::size_t where_width = 5;
  for (const MemoryItem& item : items) {
    name_width = std::max(name_width, item.name.size());
    where_width = std::max(where_width, item.where.size());
  }
  std::ostringstream out;
  const auto line = [&](const std::string& name, std::int64_t bytes, const std::string& where,
                        const std::string& formula) {
    out << std::left << std::setw(static_cast<int>(name_width)) << name << std::right << std::setw(16) << bytes
        << " B  " << std::left << std::setw(static_cast<int>(where_width)) << where << "  " << formula << '\n';
  };
  for (const MemoryItem& item : items) line(item.name, item.bytes, item.where, item.formula);
  line("total", total_bytes(), "", "");
  return out.str();
}

}  // namespace moelink
