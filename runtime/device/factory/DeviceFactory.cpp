// Opens devices by name.
#include "device/factory/DeviceFactory.h"
#include "device/cpu/CpuDevice.h"
#include "device/cuda/CudaDevice.h"
#include "support/Error.h"
#include "xfc/abi.h"
#include <string>

namespace xfc {

std::unique_ptr<Device> openDevice(std::string_view kind, std::string_view cudaImage, int ordinal) {
  if (kind == "cuda")
    return std::make_unique<cuda::CudaDevice>(xfc_device_images, cudaImage, ordinal);
  if (!cudaImage.empty())
    throw Error("--cuda-image " + std::string(cudaImage) + ": chooses a GPU's code; it needs --device cuda");
  return cpuDevice(xfc_images);
}

} // namespace xfc
