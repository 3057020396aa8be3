// Opens devices by the names that --device takes: the one place that knows them all.
#pragma once

#include "device/Device.h"
#include "xfc/abi.h"
#include <memory>
#include <string>
#include <string_view>

namespace xfc {

// The generated code of a model.
struct Images {
  const xfc_image *const *cpu;
  const xfc_device_image *const *gpu;
};
// That of this executable.
Images ownImages();
// That of a library of `xfc compile --emit lib`, which stays loaded. Throws Error if the file is something else, or if
// another version of xfc made it.
Images imagesOf(const std::string &library);

// The options of a GPU.
struct CudaOptions {
  std::string_view image = {};     // as --cuda-image names it; empty: the best that the GPU can run
  std::string_view step = "graph"; // how decoding steps run: "graph", or "persistent" for one kernel where there is one
};

// "cpu", or "cuda" for GPU number `ordinal`, modulo the number of GPUs. Throws Error naming what the machine or the
// executable lacks.
std::unique_ptr<Device> openDevice(std::string_view kind, const CudaOptions &options = {}, int ordinal = 0,
                                   const Images &images = ownImages());

} // namespace xfc
