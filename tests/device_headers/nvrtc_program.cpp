// A user's program for NVRTC: nvrtc_program <folder of two_phase_sum.cuh> <include folder>... compiles the algorithm
// for the oldest and the newest architecture that moelink knows. No device is needed.
#include <nvrtc.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr const char* kSource = R"(
#include "moelink/device/exec/device_exec.cuh"
#include "two_phase_sum.cuh"
extern "C" __global__ void sum_kernel(TwoPhaseSum args) { two_phase_sum(moelink::DeviceExec{}, args); }
)";

bool compile_for(const std::string& architecture, std::vector<std::string> options) {
  options.push_back("--gpu-architecture=" + architecture);
  options.emplace_back("--std=c++20");
  std::vector<const char*> raw;
  for (const std::string& option : options) {
    raw.push_back(option.c_str());
  }
  nvrtcProgram program = nullptr;
  nvrtcCreateProgram(&program, kSource, "user.cu", 0, nullptr, nullptr);
  const nvrtcResult result = nvrtcCompileProgram(program, static_cast<int>(raw.size()), raw.data());
  std::size_t log_bytes = 0;
  nvrtcGetProgramLogSize(program, &log_bytes);
  std::string log(log_bytes, '\0');
  nvrtcGetProgramLog(program, log.data());
  std::size_t cubin_bytes = 0;
  nvrtcGetCUBINSize(program, &cubin_bytes);
  nvrtcDestroyProgram(&program);
  std::printf("%s: %s, %zu bytes\n%s\n", architecture.c_str(), nvrtcGetErrorString(result), cubin_bytes, log.c_str());
  return result == NVRTC_SUCCESS && cubin_bytes != 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> options;
  for (int i = 1; i < argc; ++i) {
    options.push_back(std::string("--include-path=") + argv[i]);
  }
  return compile_for("sm_90", options) && compile_for("sm_100a", options) ? 0 : 1;
}
