// Which tensors a configuration asks for.
#pragma once

#include <string>
#include <vector>

#include "engine/model/config.hpp"

namespace moelink::engine {

/// Throws invalid_argument for a tensor that a model of this configuration does not have: a layer or an expert too
/// many, naming both counts, or a part that is not implemented. Files often have more than they need, which changes
/// nothing and is let through: a head beside a tied embedding, and tables of rotary positions. `origin` begins the
/// message.
void refuse_unknown_tensors(const ModelConfig& config, const std::vector<std::string>& names,
                            const std::string& origin);

}  // namespace moelink::engine
