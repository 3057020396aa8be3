// The CPU device: runs the kernels of one of the executable's images on the threads of a pool.
#pragma once

#include "device/Device.h"
#include "xfc/abi.h"
#include <memory>
#include <vector>

namespace xfc {

// Those of the images (abi.h) that this CPU can run, the best first.
std::vector<const xfc_image *> usableImages(const xfc_image *const *images);
// Uses the first of the images (abi.h) that this CPU can run. Throws Error naming the missing features if there is
// none.
std::unique_ptr<Device> cpuDevice(const xfc_image *const *images);
// Uses this image without checking what it requires.
std::unique_ptr<Device> cpuDevice(const xfc_image &image);

} // namespace xfc
