// Turns plans and the tables of images into objects, and back.
#pragma once

#include "CPU/InstructionSet.h"
#include "MachineCode/ObjectFile.h"
#include "plan/Plan.h"
#include <string>
#include <vector>

namespace xfc {

// The object that defines the xfc_image `image` for an instruction set, whose kernels emitKernels() compiled.
ObjectFile emitImage(const Module &plan, const std::string &image, const InstructionSet &set);

// The kernels of a GPU architecture, already compiled.
struct DeviceCode {
  std::string arch; // for example sm_80
  std::string ptx;
  std::vector<uint8_t> cubin; // may be empty
};
// The object that defines an xfc_device_image under the name `image`.
ObjectFile emitDeviceImage(const DeviceCode &code, const Module &plan, const std::string &image);

// The plan of an image, and the name of its instruction set or GPU architecture.
struct NamedPlan {
  std::string target;
  Module plan;
};
// The plans of an executable or a library. Throws Error if the file cannot be read, or if xfc did not make it.
std::vector<NamedPlan> plansOf(const std::string &file);

// The object that defines xfc_images and xfc_device_images, best first.
ObjectFile emitImageTables(const std::vector<std::string> &images, const std::vector<std::string> &deviceImages);

} // namespace xfc
