#include "engine/math/cublas.hpp"

#if MOELINK_ENGINE_CUDA

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <string>
#include <vector>

#include "engine/base/text.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

// What NVIDIA recommends for Hopper.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

void* open_library() {
  // The loader's search path first, then where the toolkit installs itself without telling the loader.
  std::string tried;
  for (const char* name :
       {"libcublas.so.13", "libcublas.so.12", "libcublas.so", "/usr/local/cuda/lib64/libcublas.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) {
      return library;
    }
    tried += (tried.empty() ? "" : ", ") + std::string(name);
  }
  throw Error(ErrorCode::unsupported, text("cuBLAS was not found (tried ", tried,
                                           "); the engine needs it on a GPU: install the CUDA toolkit's ",
                                           "libcublas, or put its folder into LD_LIBRARY_PATH"));
}

template <class Function>
void resolve(void* library, Function& slot, const char* name) {
  slot = reinterpret_cast<Function>(dlsym(library, name));
  if (slot == nullptr) {
    throw Error(ErrorCode::unsupported, text("the cuBLAS that was found lacks ", name, "; 12.5 or newer is needed"));
  }
}

cudaDataType_t cuda_type_of(DataType type) { return type == DataType::bfloat16 ? CUDA_R_16BF : CUDA_R_32F; }

/// cuBLAS works in the context that is current in the calling thread.
void make_current(Device device) {
  if (const cudaError_t error = cudaSetDevice(device.ordinal()); error != cudaSuccess) {
    throw Error(ErrorCode::cuda, text("cudaSetDevice(", device.ordinal(), ") failed: ", cudaGetErrorString(error)));
  }
}

}  // namespace

const CublasFunctions& CublasFunctions::get() {
  static const CublasFunctions kFunctions = [] {
    void* library = open_library();
    CublasFunctions functions;
    resolve(library, functions.create, "cublasCreate_v2");
    resolve(library, functions.destroy, "cublasDestroy_v2");
    resolve(library, functions.set_stream, "cublasSetStream_v2");
    resolve(library, functions.set_workspace, "cublasSetWorkspace_v2");
    resolve(library, functions.gemm, "cublasGemmEx");
    resolve(library, functions.grouped_gemm, "cublasGemmGroupedBatchedEx");
    resolve(library, functions.status_string, "cublasGetStatusString");
    return functions;
  }();
  return kFunctions;
}

Cublas::Cublas(Device device, DataType type) : device_(device), type_(type), functions_(CublasFunctions::get()) {
  make_current(device_);
  workspace_ = Buffer(device_, kWorkspaceBytes);
  check(functions_.create(&handle_), "cublasCreate");
}

Cublas::~Cublas() {
  if (cudaSetDevice(device_.ordinal()) == cudaSuccess) {
    functions_.destroy(handle_);
  }
}

void Cublas::check(cublasStatus_t status, const char* call) const {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw Error(ErrorCode::cuda, text(call, " failed: ", functions_.status_string(status)));
  }
}

void Cublas::use(StreamView stream) const {
  make_current(device_);
  check(functions_.set_stream(handle_, static_cast<cudaStream_t>(stream.cuda_handle())), "cublasSetStream");
  // Setting a stream resets the workspace to one that cuBLAS allocates.
  check(functions_.set_workspace(handle_, workspace_.data(), workspace_.size_bytes()), "cublasSetWorkspace");
}

// cuBLAS is column-major: a row-major matrix is its transpose there. So the wanted output is, transposed, weights
// (transposed back) times input.
void Cublas::gemm(const ProductGroup& product, std::int64_t outputs, std::int64_t inputs, DataType output_type,
                  StreamView stream) {
  if (product.num_rows == 0) {
    return;
  }
  use(stream);
  const float one = 1;
  const float zero = 0;
  check(functions_.gemm(handle_, CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(outputs), product.num_rows,
                        static_cast<int>(inputs), &one, product.weights, cuda_type_of(type_), static_cast<int>(inputs),
                        product.input, cuda_type_of(type_), static_cast<int>(inputs), &zero, product.output,
                        cuda_type_of(output_type), static_cast<int>(outputs), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
}

void Cublas::grouped_gemm(std::span<const ProductGroup> groups, std::int64_t outputs, std::int64_t inputs,
                          StreamView stream) {
  if (groups.empty()) {
    return;
  }
  use(stream);
  const std::size_t count = groups.size();
  std::vector<const void*> pointers(3 * count);
  std::vector<int> rows(count);
  for (std::size_t i = 0; i < count; ++i) {
    pointers[i] = groups[i].weights;
    pointers[count + i] = groups[i].input;
    pointers[2 * count + i] = groups[i].output;
    rows[i] = groups[i].num_rows;
  }
  const std::size_t bytes = pointers.size() * sizeof(pointers[0]);
  if (pointers_.size_bytes() < bytes) {
    stream.synchronize();  // an earlier product may still read the old ones
    pointers_ = Buffer(device_, bytes);
  }
  // Pageable memory: the driver has taken the pointers when the call returns.
  copy_bytes(pointers_.data(), pointers.data(), bytes, stream);
  const auto* weights = pointers_.as<const void* const>();
  const std::vector<cublasOperation_t> transposed(count, CUBLAS_OP_T);
  const std::vector<cublasOperation_t> plain(count, CUBLAS_OP_N);
  const std::vector<int> wide(count, static_cast<int>(outputs));
  const std::vector<int> deep(count, static_cast<int>(inputs));
  const std::vector<int> one_each(count, 1);
  const std::vector<float> ones(count, 1.0F);
  const std::vector<float> zeros(count, 0.0F);
  const cudaDataType_t type = cuda_type_of(type_);
  check(functions_.grouped_gemm(handle_, transposed.data(), plain.data(), wide.data(), rows.data(), deep.data(),
                                ones.data(), weights, type, deep.data(), weights + count, type, deep.data(),
                                zeros.data(), const_cast<void* const*>(weights + 2 * count), type, wide.data(),
                                static_cast<int>(count), one_each.data(), CUBLAS_COMPUTE_32F),
        "cublasGemmGroupedBatchedEx");
}

}  // namespace moelink::engine

#endif
