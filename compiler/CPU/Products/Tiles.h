// The micro-kernel of AMX, and how the tiles of a product follow each other.
#pragma once

#include "MicroKernel.h"

namespace xfc {

// multiplyPanels (MicroKernel.h) for products by tiles.
void multiplyTiles(KernelBuilder &k, const Tiling &t, const Left &a, const Right &b, int64_t panels, const Term &depth,
                   const View &c, mlir::Value count, mlir::Value accumulate, const Ahead &ahead, bool fetchNext,
                   llvm::ArrayRef<FetchedRows> fetched, const Completion *completion);

// The first arguments of every micro-kernel: its operands with their strides, and how it sums.
llvm::SmallVector<mlir::Value> argumentsOf(KernelBuilder &k, const View &left, const View &right, const Term &depth,
                                           const View &sums, mlir::Value accumulate);

} // namespace xfc
