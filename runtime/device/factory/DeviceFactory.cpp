// Devices by name.
#include "device/factory/DeviceFactory.h"
#include "device/cpu/CpuDevice.h"
#include "device/cuda/CudaDevice.h"
#include "xfc/abi.h"

namespace xfc {

std::unique_ptr<Device> openDevice(std::string_view kind) {
  if (kind == "cuda")
    return std::make_unique<cuda::CudaDevice>(xfc_device_images);
  return cpuDevice(xfc_images);
}

} // namespace xfc
