// What makes two launches share a kernel, what a kernel is called, and what a launch costs.
#pragma once

#include "Dialect/XFC.h"
#include "plan/Plan.h"
#include <string>

namespace xfc {

// Equal for ops that the same kernel serves: the op, its attributes and types without the sets of rows and
// dropout ids, which results are used, and the epilogue.
std::string kernelKey(mlir::Operation *op);
// A readable name, not unique: linear_512x2048_relu.
std::string kernelName(mlir::Operation *op);
// Whether the op is of a decoding step, where each row of the target is a sequence of its own: of a program that has a
// cache, or of a kernel that says so.
bool isDecodingStep(mlir::Operation *op);
// The dropout ids a launch passes, in order.
std::vector<int64_t> dropoutIds(mlir::Operation *op);

// The sets of rows a launch works on, and its key structure, or -1.
struct LaunchSets {
  int8_t set = 0, keySet = 0;
  int16_t keys = -1;
};
LaunchSets launchSets(mlir::Operation *op);

// Bytes of a value.
Size sizeOf(mlir::Type type);
Size flopsOf(mlir::Operation *op);
Size trafficOf(mlir::Operation *op);

} // namespace xfc
