#include "engine/math/panel_body.hpp"

namespace moelink::engine {

void multiply_plain(const Panel& panel) { multiply(panel); }

}  // namespace moelink::engine
