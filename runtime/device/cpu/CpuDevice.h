// The CPU: kernels of one of the executable's images on the threads of a pool.
#pragma once

#include "device/Device.h"
#include "xfc/abi.h"
#include <memory>

namespace xfc {

// With the first of the images (abi.h) that this CPU can run. Throws Error saying what is missing if there is none.
std::unique_ptr<Device> cpuDevice(const xfc_image *const *images);
// With a given image, whatever it needs.
std::unique_ptr<Device> cpuDevice(const xfc_image &image);

} // namespace xfc
