// The platforms.
#include "Target.h"

namespace xfc {

const std::array<PlatformInfo, 2> platforms = {
    {{Platform::CPU, "cpu", "--cpu", "instruction set", "CPUs", "xfc_image_", "xfc_images"},
     {Platform::CUDA, "cuda", "--cuda-arch", "architecture", "GPUs", "xfc_device_image_", "xfc_device_images"}}};

const PlatformInfo &infoOf(Platform platform) {
  return *llvm::find_if(platforms, [&](const PlatformInfo &info) { return info.platform == platform; });
}

} // namespace xfc
