#include "jit/compile.hpp"

#include <chrono>
#include <string_view>

#include "base/text.hpp"
#include "jit/nvrtc.hpp"
#include "moelink/error.hpp"

namespace moelink {

std::string architecture_of(int major, int minor) {
  // From Hopper on, the variant with an "a": instructions of exactly this architecture (bulk copies with options,
  // multimem, ...). The cubin then runs on no other, which costs nothing when it is compiled where it runs.
  return "sm_" + std::to_string(major) + std::to_string(minor) + (major >= 9 ? "a" : "");
}

#if MOELINK_HAVE_CUDA

namespace {

std::vector<std::string> options_for(const Nvrtc& nvrtc, const std::string& architecture) {
  std::vector<std::string> options = {
      "--std=c++20",
      "--gpu-architecture=" + architecture,
      // Sums are multiply, then add, both rounded, as on the host (-ffp-contract=off): the same bits everywhere. The
      // kernels are bound by memory, so that the second instruction costs nothing. No fast-math for the same reason.
      "--fmad=false",
      // Functions without a qualifier, such as the constexpr ones of protocol/, are device functions: headers shared
      // with the host need no macro on each.
      "--device-as-default-execution-space",
      // Registers and spills, which land in the log.
      "--ptxas-options=-v",
  };
  if (nvrtc.at_least(12, 8)) {
    // No textures, no device runtime, no runtime-API types in the preamble: a tenth of the time of a small kernel.
    options.emplace_back("--minimal");
    // What is not embedded does not exist: a folder "moelink" in the working directory must not change a kernel.
    options.emplace_back("--no-source-include");
  }
  return options;
}

class Program {
 public:
  Program(const Nvrtc& nvrtc, const SourceSet& sources, const KernelRequest& request) : nvrtc_(nvrtc) {
    std::vector<const char*> names;
    std::vector<const char*> texts;
    for (const SourceFile& file : sources.files) {
      names.push_back(file.name);
      texts.push_back(file.text);
    }
    const std::string main = "#include \"moelink/device/exec/entry.cuh\"\n#include \"" + request.header + "\"\n";
    check(nvrtc.create_program(&program_, main.c_str(), "moelink_kernel.cu", static_cast<int>(names.size()),
                               texts.data(), names.data()),
          "nvrtcCreateProgram");
  }
  ~Program() { nvrtc_.destroy_program(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void compile(const KernelRequest& request, const std::string& architecture) {
    check(nvrtc_.add_name_expression(program_, request.expression.c_str()), "nvrtcAddNameExpression");
    const std::vector<std::string> options = options_for(nvrtc_, architecture);
    std::vector<const char*> pointers;
    for (const std::string& option : options) {
      pointers.push_back(option.c_str());
    }
    const nvrtcResult result = nvrtc_.compile_program(program_, static_cast<int>(pointers.size()), pointers.data());
    if (result != NVRTC_SUCCESS) {
      throw Error(ErrorCode::compile,
                  text(request.expression, " for ", architecture, " did not compile (NVRTC ", nvrtc_.major, ".",
                       nvrtc_.minor, ", ", nvrtc_.get_error_string(result), "):\n", log()));
    }
  }

  [[nodiscard]] std::string log() const { return output(nvrtc_.get_program_log_size, nvrtc_.get_program_log); }
  [[nodiscard]] std::string ptx() const { return output(nvrtc_.get_ptx_size, nvrtc_.get_ptx); }

  [[nodiscard]] std::string cubin() const {
    std::size_t bytes = 0;
    check(nvrtc_.get_cubin_size(program_, &bytes), "nvrtcGetCUBINSize");
    std::string cubin(bytes, '\0');
    check(nvrtc_.get_cubin(program_, cubin.data()), "nvrtcGetCUBIN");
    return cubin;
  }

  [[nodiscard]] std::string lowered_name(const KernelRequest& request) const {
    const char* name = nullptr;
    check(nvrtc_.get_lowered_name(program_, request.expression.c_str(), &name), "nvrtcGetLoweredName");
    return name;
  }

 private:
  // NVRTC's texts count their terminating zero.
  template <class Size, class Get>
  [[nodiscard]] std::string output(Size size, Get get) const {
    std::size_t bytes = 0;
    check(size(program_, &bytes), "the size of NVRTC's output");
    std::string buffer(bytes, '\0');
    check(get(program_, buffer.data()), "NVRTC's output");
    buffer.resize(bytes == 0 ? 0 : bytes - 1);
    return buffer;
  }

  void check(nvrtcResult result, std::string_view call) const {
    if (result != NVRTC_SUCCESS) {
      throw Error(ErrorCode::compile, std::string(call) + " failed: " + nvrtc_.get_error_string(result));
    }
  }

  const Nvrtc& nvrtc_;
  nvrtcProgram program_ = nullptr;
};

}  // namespace

std::string compile_key(const SourceSet& sources, const KernelRequest& request, const std::string& architecture) {
  const Nvrtc& nvrtc = Nvrtc::get();
  std::string options;
  for (const std::string& option : options_for(nvrtc, architecture)) {
    options += " " + option;
  }
  return text("sources ", sources.hash, "\nnvrtc ", nvrtc.major, ".", nvrtc.minor, "\noptions", options, "\nheader ",
              request.header, "\nexpression ", request.expression, "\n");
}

CompiledKernel compile(const SourceSet& sources, const KernelRequest& request, const std::string& architecture) {
  const auto start = std::chrono::steady_clock::now();
  Program program(Nvrtc::get(), sources, request);
  program.compile(request, architecture);
  CompiledKernel kernel{
      .lowered_name = program.lowered_name(request), .cubin = program.cubin(), .usage = parse_ptxas_log(program.log())};
  kernel.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return kernel;
}

std::string compile_to_ptx(const SourceSet& sources, const KernelRequest& request, const std::string& architecture) {
  Program program(Nvrtc::get(), sources, request);
  program.compile(request, architecture);
  return program.ptx();
}

#else

namespace {

[[noreturn]] void refuse(const KernelRequest& request) {
  throw Error(ErrorCode::unsupported, request.name + " cannot be compiled for a GPU: this library was built without " +
                                          "the CUDA toolkit; configure it where the toolkit is installed");
}

}  // namespace

std::string compile_key(const SourceSet&, const KernelRequest& request, const std::string&) { refuse(request); }
CompiledKernel compile(const SourceSet&, const KernelRequest& request, const std::string&) { refuse(request); }
std::string compile_to_ptx(const SourceSet&, const KernelRequest& request, const std::string&) { refuse(request); }

#endif

}  // namespace moelink
