// NVIDIA's driver: the functions we call, looked up in libcuda.so.1 when a GPU is requested.
#include "device/cuda/Driver.h"
#include <dlfcn.h>

namespace xfc::cuda {

Driver::Driver() : library(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
  // Without the library no function was found, and none is called.
  if (!library)
    throw Error("--device cuda: libcuda.so.1 was not found; install NVIDIA's driver, or use --device cpu");
  if (init.result(0) == error::noDevice)
    throw Error(
        "--device cuda: the driver found no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu");
  init(0); // throws for any other error
}

void *Driver::find(const char *name) const { return library ? dlsym(library, name) : nullptr; }

std::string Driver::versionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void Driver::lacks(const char *function) const {
  throw Error(std::string("--device cuda: this driver has no ") + function +
              "; install a newer NVIDIA driver, or use --device cpu");
}

void Driver::fail(const char *function, Result result) const {
  auto text = [&](const auto &get) {
    const char *words = nullptr;
    return get.result(result, &words) == 0 && words ? std::string(words) : std::string();
  };
  std::string name = text(getErrorName), description = text(getErrorString);
  std::string message =
      std::string("--device cuda: ") + function + ": " + (name.empty() ? "error " + std::to_string(result) : name);
  if (!description.empty())
    message += " (" + description + ")";
  switch (result) {
  case error::outOfMemory:
    message += "; use smaller batches (--batch-tokens), or a GPU with more free memory";
    break;
  case 46: // CUDA_ERROR_DEVICE_UNAVAILABLE
    message += "; another process has exclusive use of the GPU";
    break;
  case error::eccUncorrectable:
  case 220:
  case 226:
  case 700:
  case 702:
  case 710:
  case 714:
  case 715:
  case 716:
  case 717:
  case 718:
  case 719:
  case 999:
    // Errors after which the device accepts no further calls from this process.
    message += "; the GPU was lost in the middle of the run, but what was saved before is intact: start again (train "
               "--resume), or use --device cpu";
    break;
  default:
    message += "; check nvidia-smi, or use --device cpu";
  }
  throw Error(message);
}

} // namespace xfc::cuda
