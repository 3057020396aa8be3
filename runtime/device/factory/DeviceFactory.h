// Devices by the name that --device has for them: the one place that knows which there are.
#pragma once

#include "device/Device.h"
#include <memory>
#include <string_view>

namespace xfc {

// "cpu", or "cuda" for the first GPU, with the best image of this executable that it can run, or the GPU image that
// --cuda-image names. Throws Error saying what is missing: of the machine, or of the executable.
std::unique_ptr<Device> openDevice(std::string_view kind, std::string_view cudaImage = {});

} // namespace xfc
