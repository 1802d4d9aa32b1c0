#include "jit/nvrtc.hpp"

#if MOELINK_HAVE_CUDA

#include <vector>

#include "base/environment.hpp"
#include "base/shared_library.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

// The loader's search path first, then where the toolkit installs itself without telling the loader.
std::vector<std::string> candidates(const std::string& path) {
  if (!path.empty()) {
    return {path};
  }
  return {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"};
}

}  // namespace

Nvrtc Nvrtc::open(const std::string& path) {
  const std::vector<std::string> files = candidates(path);
  const SharedLibrary library(files);
  if (!library.is_loaded()) {
    std::string tried;
    for (const std::string& file : files) tried += (tried.empty() ? "" : ", ") + file;
    throw Error(ErrorCode::unsupported,
                "kernels cannot be compiled: NVRTC was not found (tried " + tried +
                    "); install the CUDA toolkit's NVRTC, or set MOELINK_NVRTC to its libnvrtc.so");
  }
  const auto need = [&](auto*& slot, const char* name) {
    library.need(slot, name, "install CUDA 12 or newer, or set MOELINK_NVRTC to its libnvrtc.so");
  };
  Nvrtc nvrtc;
  need(nvrtc.get_version, "nvrtcVersion");
  need(nvrtc.get_error_string, "nvrtcGetErrorString");
  need(nvrtc.create_program, "nvrtcCreateProgram");
  need(nvrtc.destroy_program, "nvrtcDestroyProgram");
  need(nvrtc.add_name_expression, "nvrtcAddNameExpression");
  need(nvrtc.compile_program, "nvrtcCompileProgram");
  need(nvrtc.get_program_log_size, "nvrtcGetProgramLogSize");
  need(nvrtc.get_program_log, "nvrtcGetProgramLog");
  need(nvrtc.get_lowered_name, "nvrtcGetLoweredName");
  need(nvrtc.get_cubin_size, "nvrtcGetCUBINSize");
  need(nvrtc.get_cubin, "nvrtcGetCUBIN");
  need(nvrtc.get_ptx_size, "nvrtcGetPTXSize");
  need(nvrtc.get_ptx, "nvrtcGetPTX");
  nvrtc.get_version(&nvrtc.major, &nvrtc.minor);
  nvrtc.library = library.file();
  return nvrtc;
}

const Nvrtc& Nvrtc::get() {
  static const Nvrtc nvrtc = open(Environment::get().nvrtc_library);
  return nvrtc;
}

}  // namespace moelink

#endif
