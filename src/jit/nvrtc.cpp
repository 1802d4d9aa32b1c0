#include "jit/nvrtc.hpp"

#if MOELINK_HAVE_CUDA

#include <dlfcn.h>

#include <vector>

#include "base/environment.hpp"
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

template <class Function>
void resolve(void* library, Function*& slot, const char* name) {
  slot = reinterpret_cast<Function*>(dlsym(library, name));
  if (slot == nullptr) {
    throw Error(ErrorCode::unsupported, std::string("the NVRTC library lacks ") + name +
                                            "; install CUDA 12 or newer, or set MOELINK_NVRTC to its libnvrtc.so");
  }
}

}  // namespace

Nvrtc Nvrtc::open(const std::string& path) {
  std::string tried;
  for (const std::string& name : candidates(path)) {
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      tried += (tried.empty() ? "" : ", ") + name;
      continue;
    }
    Nvrtc nvrtc;
    resolve(library, nvrtc.get_version, "nvrtcVersion");
    resolve(library, nvrtc.get_error_string, "nvrtcGetErrorString");
    resolve(library, nvrtc.create_program, "nvrtcCreateProgram");
    resolve(library, nvrtc.destroy_program, "nvrtcDestroyProgram");
    resolve(library, nvrtc.add_name_expression, "nvrtcAddNameExpression");
    resolve(library, nvrtc.compile_program, "nvrtcCompileProgram");
    resolve(library, nvrtc.get_program_log_size, "nvrtcGetProgramLogSize");
    resolve(library, nvrtc.get_program_log, "nvrtcGetProgramLog");
    resolve(library, nvrtc.get_lowered_name, "nvrtcGetLoweredName");
    resolve(library, nvrtc.get_cubin_size, "nvrtcGetCUBINSize");
    resolve(library, nvrtc.get_cubin, "nvrtcGetCUBIN");
    resolve(library, nvrtc.get_ptx_size, "nvrtcGetPTXSize");
    resolve(library, nvrtc.get_ptx, "nvrtcGetPTX");
    nvrtc.get_version(&nvrtc.major, &nvrtc.minor);
    nvrtc.library = name;
    return nvrtc;
  }
  throw Error(ErrorCode::unsupported,
              "kernels cannot be compiled: NVRTC was not found (tried " + tried +
                  "); install the CUDA toolkit's NVRTC, or set MOELINK_NVRTC to its libnvrtc.so");
}

const Nvrtc& Nvrtc::get() {
  static const Nvrtc nvrtc = open(Environment::get().nvrtc_library);
  return nvrtc;
}

}  // namespace moelink

#endif
