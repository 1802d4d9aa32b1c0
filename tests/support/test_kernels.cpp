#include "support/test_kernels.hpp"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/sha256.hpp"
#include "launch/cuda_kernel.hpp"
#include "moelink/error.hpp"

namespace moelink::test {
namespace {

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

const SourceSet& test_kernel_sources() {
  static std::deque<std::string> texts;  // a SourceSet only views
  static std::vector<SourceFile> files;
  static const SourceSet sources = [] {
    const SourceSet embedded = embedded_sources();
    files.assign(embedded.files.begin(), embedded.files.end());
    std::string digest = embedded.hash;
    for (const auto& entry : std::filesystem::directory_iterator(MOELINK_TEST_KERNELS)) {
      const std::string& name = texts.emplace_back("moelink/test/" + entry.path().filename().string());
      const std::string& source = texts.emplace_back(contents_of(entry.path()));
      files.push_back({name.c_str(), source.c_str()});
      digest += name + source;
    }
    return SourceSet{files, to_hex(sha256(digest))};
  }();
  return sources;
}

std::shared_ptr<const LoadedKernel> load_on_gpu(Device device, const KernelRequest& request) {
#if MOELINK_HAVE_CUDA
  const std::string architecture = architecture_of(CudaDriver::get(), device);
  return loaded_cuda_kernel(device, test_kernel_sources().hash, request,
                            compile(test_kernel_sources(), request, architecture));
#else
  throw Error(ErrorCode::unsupported, request.name + " cannot run on " + device.name() + ": built without CUDA");
#endif
}

}  // namespace moelink::test
