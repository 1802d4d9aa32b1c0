#include "perf/common/quantization_flag.hpp"

#include <array>
#include <CLI/CLI.hpp>
#include <vector>

namespace moelink::perf {
namespace {

constexpr std::array kFormats = {Quantization::none,  Quantization::fp8,   Quantization::fp8_pow2,
                                 Quantization::mxfp8, Quantization::mxfp4, Quantization::nvfp4};

}  // namespace

void QuantizationFlag::add_to(CLI::App& app, const char* group) {
  std::vector<std::string> names;
  for (const Quantization format : kFormats) {
    names.emplace_back(name_of(format));
  }
  app.add_option("--payload", name, "what rows are quantised to on their way to experts")
      ->check(CLI::IsMember(names))
      ->capture_default_str()
      ->group(group);
}

Quantization QuantizationFlag::value() const {
  for (const Quantization format : kFormats) {
    if (name_of(format) == name) return format;
  }
  return Quantization::none;
}

}  // namespace moelink::perf
