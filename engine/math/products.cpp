#include "engine/math/products.hpp"

#include "engine/base/text.hpp"
#include "engine/math/cuda_products.hpp"
#include "engine/math/host_products.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {

std::unique_ptr<Products> Products::make(Device device, DataType type) {
  if (!device.is_host()) {
#if MOELINK_ENGINE_CUDA
    return std::make_unique<CudaProducts>(device, type);
#else
    throw Error(ErrorCode::unsupported, text("the engine was built without cuBLAS and cannot use ", device.name(),
                                             "; build it where the CUDA toolkit is installed, or use Device::host()"));
#endif
  }
  return std::make_unique<HostProducts>(type);
}

}  // namespace moelink::engine
