// A compiled kernel and its key as bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jit/compiled_kernel.hpp"

namespace moelink {

[[nodiscard]] std::string encode_entry(std::string_view key, const CompiledKernel& kernel);

/// Nothing if `bytes` is not exactly what encode_entry wrote for this key.
[[nodiscard]] std::optional<CompiledKernel> decode_entry(std::string_view key, std::string_view bytes);

}  // namespace moelink
