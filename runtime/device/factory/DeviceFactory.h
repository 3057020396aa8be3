// Opens devices by the names that --device takes: the one place that knows them all.
#pragma once

#include "device/Device.h"
#include <memory>
#include <string_view>

namespace xfc {

// "cpu", or "cuda" for GPU number `ordinal`, modulo the number of GPUs, with the GPU image that --cuda-image names, or
// else the best one in this executable that the GPU can run. Throws Error naming what the machine or the executable
// lacks.
std::unique_ptr<Device> openDevice(std::string_view kind, std::string_view cudaImage = {}, int ordinal = 0);

} // namespace xfc
