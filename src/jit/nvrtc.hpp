// NVRTC as a table of function pointers, found at run time: programs start, and cached or host-only work runs, on
// machines without the CUDA toolkit.
#pragma once

#if MOELINK_HAVE_CUDA

#include <nvrtc.h>

#include <string>

namespace moelink {

/// Member names follow NVRTC's, in snake case without the "nvrtc".
struct Nvrtc {
  decltype(&::nvrtcVersion) get_version = nullptr;
  decltype(&::nvrtcGetErrorString) get_error_string = nullptr;
  decltype(&::nvrtcCreateProgram) create_program = nullptr;
  decltype(&::nvrtcDestroyProgram) destroy_program = nullptr;
  decltype(&::nvrtcAddNameExpression) add_name_expression = nullptr;
  decltype(&::nvrtcCompileProgram) compile_program = nullptr;
  decltype(&::nvrtcGetProgramLogSize) get_program_log_size = nullptr;
  decltype(&::nvrtcGetProgramLog) get_program_log = nullptr;
  decltype(&::nvrtcGetLoweredName) get_lowered_name = nullptr;
  decltype(&::nvrtcGetCUBINSize) get_cubin_size = nullptr;
  decltype(&::nvrtcGetCUBIN) get_cubin = nullptr;
  decltype(&::nvrtcGetPTXSize) get_ptx_size = nullptr;
  decltype(&::nvrtcGetPTX) get_ptx = nullptr;

  int major = 0;
  int minor = 0;
  std::string library;  ///< what was opened

  [[nodiscard]] bool at_least(int wanted_major, int wanted_minor) const {
    return major != wanted_major ? major > wanted_major : minor >= wanted_minor;
  }

  /// Opens `path`, or where it is empty the newest known name that the dynamic loader finds. Throws
  /// ErrorCode::unsupported, naming what was tried.
  [[nodiscard]] static Nvrtc open(const std::string& path);
  /// This process's NVRTC (MOELINK_NVRTC or a search), opened once. Throws as open(), at every call.
  [[nodiscard]] static const Nvrtc& get();
};

}  // namespace moelink

#endif
