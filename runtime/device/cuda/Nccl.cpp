// NCCL: the functions we call, looked up in libnccl.so.2 when GPUs of several processes are to exchange memory.
#include "device/cuda/Nccl.h"
#include <dlfcn.h>

namespace xfc::cuda {

Nccl::Nccl() : library(dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL)) {
  if (!library)
    throw Error(
        "several processes with --device cuda exchange gradients by NCCL, but libnccl.so.2 was not found; install "
        "it (NVIDIA's package libnccl2, or the Python package nvidia-nccl-cu12), name its folder in "
        "LD_LIBRARY_PATH, or train in one process");
  if (!send || !receive)
    lacks("ncclSend");
}

void *Nccl::find(const char *name) const { return library ? dlsym(library, name) : nullptr; }

std::string Nccl::describe(Result result) const {
  const auto words = reinterpret_cast<const char *(*)(Result)>(find("ncclGetErrorString"));
  return words ? words(result) : "error " + std::to_string(result);
}

void Nccl::lacks(const char *function) const {
  int version = 0;
  getVersion.result(&version); // 2.6.4 is 2604
  throw Error(std::string("this NCCL") + (version > 0 ? ", version code " + std::to_string(version) + "," : "") +
              " has no " + function + "; install version 2.7 or later");
}

void Nccl::fail(const char *function, Result result) const {
  throw Error(std::string("NCCL: ") + function + ": " + describe(result) +
              "; NCCL_DEBUG=INFO in the environment makes it say more");
}

} // namespace xfc::cuda
