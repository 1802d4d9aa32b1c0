#include "engine/math/panel_body.hpp"

#if MOELINK_ENGINE_X86

namespace moelink::engine {

void multiply_avx512(const Panel& panel) { multiply(panel); }

}  // namespace moelink::engine

#endif
