// cuBLAS, opened at run time: programs start, and the host computes, where it is not installed.
#pragma once

#if MOELINK_ENGINE_CUDA

#include <cublas_v2.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "moelink/buffer.hpp"
#include "moelink/stream.hpp"
#include "moelink/types.hpp"

namespace moelink::engine {

/// Functions of the library. Throws ErrorCode::unsupported, saying what was tried, if there is none.
struct CublasFunctions {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  /// cublasGemmEx, of whose name there are several in C++.
  cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*, const void*,
                         cudaDataType, int, const void*, cudaDataType, int, const void*, void*, cudaDataType, int,
                         cublasComputeType_t, cublasGemmAlgo_t) = nullptr;
  decltype(&cublasGemmGroupedBatchedEx) grouped_gemm = nullptr;
  decltype(&cublasGetStatusString) status_string = nullptr;

  [[nodiscard]] static const CublasFunctions& get();
};

/// One group of a grouped product: rows with a matrix of their own.
struct ProductGroup {
  const void* weights = nullptr;
  const void* input = nullptr;
  void* output = nullptr;
  std::int32_t num_rows = 0;
};

/// A handle on one device. Its workspace is its own, so that nothing is allocated while a stream is captured.
class Cublas {
 public:
  Cublas(Device device, DataType type);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  /// output[rows, outputs] = input[rows, inputs] * weights[outputs, inputs], row-major.
  void gemm(const ProductGroup& product, std::int64_t outputs, std::int64_t inputs, DataType output_type,
            StreamView stream);
  /// The same for several, in one call. Copies from host memory to the device: not to be captured.
  void grouped_gemm(std::span<const ProductGroup> groups, std::int64_t outputs, std::int64_t inputs, StreamView stream);

 private:
  void use(StreamView stream) const;
  void check(cublasStatus_t status, const char* call) const;

  Device device_;
  DataType type_;
  const CublasFunctions& functions_;
  cublasHandle_t handle_ = nullptr;
  Buffer workspace_;
  Buffer pointers_;  ///< of a grouped product: weights, inputs, outputs
};

}  // namespace moelink::engine

#endif
