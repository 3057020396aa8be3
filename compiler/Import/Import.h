// A Description into an xfc module: one function for each program a user can run, nothing fused.
#pragma once

#include "Description.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace xfc {

struct ImportOptions {
  bool train = true, decode = true; // --mode
  bool f64 = false;                 // --dtype f64
};

// The module verifies. Functions, their arguments and results are described in compiler/README.md.
mlir::OwningOpRef<mlir::ModuleOp> importModel(const Description &description, const ImportOptions &options,
                                              mlir::MLIRContext &context);

} // namespace xfc
