// Opens devices by name.
#include "device/factory/DeviceFactory.h"
#include "device/cpu/CpuDevice.h"
#include "device/cuda/CudaDevice.h"
#include "support/Error.h"
#include <dlfcn.h>

namespace xfc {

Images ownImages() { return {xfc_images, xfc_device_images}; }

Images imagesOf(const std::string &library) {
  // A name without a slash would be looked for where the system keeps its libraries.
  const std::string file = library.find('/') == std::string::npos ? "./" + library : library;
  const std::string expected = "; expected the libNAME.so that `xfc compile --emit lib` of this version writes";
  void *const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    throw Error(library + ": cannot be loaded: " + dlerror() + expected);
  const Images images = {static_cast<const xfc_image *const *>(dlsym(handle, "xfc_images")),
                         static_cast<const xfc_device_image *const *>(dlsym(handle, "xfc_device_images"))};
  if (!images.cpu || !images.gpu)
    throw Error(library + ": has no code of a model" + expected);
  return images;
}

std::unique_ptr<Device> openDevice(std::string_view kind, const CudaOptions &options, int ordinal,
                                   const Images &images) {
  const bool persistent = options.step == "persistent";
  if (kind == "cuda")
    return std::make_unique<cuda::CudaDevice>(images.gpu, options.image, ordinal, persistent);
  if (!options.image.empty())
    throw Error("--cuda-image " + std::string(options.image) + ": chooses a GPU's code; it needs --device cuda");
  if (persistent)
    throw Error("--cuda-step persistent: says how a GPU runs decoding steps; it needs --device cuda");
  return cpuDevice(images.cpu);
}

} // namespace xfc
