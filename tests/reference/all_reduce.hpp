// All-reduce, slow and obvious: ranks ascending, every sum rounded to fp32, one rounding to the type at the end. Shares
// no code with kernels/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/element.hpp"

namespace moelink::reference {

/// inputs[rank]: elements of `type`, as bytes, equally many.
inline std::vector<std::byte> all_reduce(const std::vector<std::vector<std::byte>>& inputs, DataType type) {
  std::vector<std::byte> output(inputs.front().size());
  const auto count = static_cast<std::int64_t>(output.size() / size_of(type));
  for (std::int64_t i = 0; i < count; ++i) {
    float sum = load(inputs.front().data(), type, i);
    for (std::size_t r = 1; r < inputs.size(); ++r) {
      sum = sum + load(inputs[r].data(), type, i);
    }
    store(output.data(), type, i, sum);
  }
  return output;
}

}  // namespace moelink::reference
