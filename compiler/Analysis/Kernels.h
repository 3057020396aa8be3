// Says which launches share a kernel, what the kernel is called, and what a launch costs.
#pragma once

#include "Dialect/XFC.h"
#include "plan/Plan.h"
#include <string>

namespace xfc {

// Equal for ops that the same kernel serves: the op, its attributes without those passed at launch (such as dropout
// ids), its types without the sets of rows (but for the cache), which results are used, and the epilogue.
std::string kernelKey(mlir::Operation *op);
// A readable name, not unique: linear_512x2048_relu.
std::string kernelName(mlir::Operation *op);
// Whether the op belongs to a decoding step, in which each row of the target is a sequence of its own: its program has
// a cache, or its kernel is marked as decoding.
bool isDecodingStep(mlir::Operation *op);
// The id of the random numbers that the op draws, itself or in its epilogue. It draws those of one dropout at most.
std::optional<int64_t> dropoutId(mlir::Operation *op);

// The bytes of a value, the floating-point operations of a launch, and the bytes that it reads and writes.
Size sizeOf(mlir::Type type);
Size flopsOf(mlir::Operation *op);
Size trafficOf(mlir::Operation *op);

} // namespace xfc
