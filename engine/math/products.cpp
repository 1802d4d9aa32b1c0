#include "engine/math/products.hpp"

#include "engine/base/text.hpp"
#include "engine/math/host_products.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {

std::unique_ptr<Products> Products::make(Device device, DataType type) {
  if (!device.is_host()) {
    throw Error(ErrorCode::unsupported, text("the engine has no products for ", device.name(), "; use Device::host()"));
  }
  if (type != DataType::float32) {
    throw Error(ErrorCode::unsupported,
                text("on the host weights and activations are float32; ", name_of(type), " was asked for"));
  }
  return std::make_unique<HostProducts>();
}

}  // namespace moelink::engine
