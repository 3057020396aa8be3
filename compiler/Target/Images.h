// Turns plans and the tables of images into objects, and back.
#pragma once

#include "MachineCode/ObjectFile.h"
#include "Target.h"
#include "plan/Plan.h"
#include <map>
#include <string>
#include <vector>

namespace xfc {

// The object that defines the xfc_image `image` for a target of CPUs, whose kernels emitKernels() compiled. It runs
// where the CPU has all features of `needed` (as /proc/cpuinfo names them, separated by commas).
ObjectFile emitImage(const Module &plan, const std::string &image, const std::string &target,
                     const std::string &needed);

// The kernels of a GPU architecture, already compiled.
struct DeviceCode {
  std::string arch; // for example sm_80
  std::string ptx;
  std::vector<uint8_t> cubin; // may be empty
};
// The object that defines an xfc_device_image under the name `image`.
ObjectFile emitDeviceImage(const DeviceCode &code, const Module &plan, const std::string &image);

// The plan of an image, and the name of its target.
struct NamedPlan {
  std::string target;
  Module plan;
};
// The plans of an executable or a library. Throws Error if the file cannot be read, or if xfc did not make it.
std::vector<NamedPlan> plansOf(const std::string &file);

// The object that defines the tables of images, of each platform in this order.
ObjectFile emitImageTables(const std::map<Platform, std::vector<std::string>> &images);

} // namespace xfc
