// What a model comes from into an xfc module: one function for each program a user can run, nothing fused.
#pragma once

#include "Description.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace xfc {

struct ImportOptions {
  bool train = true, decode = true; // --mode
  bool f64 = false;                 // --dtype f64
};

// A description as a module, which verifies. Functions, their arguments and results are described in
// compiler/README.md.
mlir::OwningOpRef<mlir::ModuleOp> importModel(const Description &description, const ImportOptions &options,
                                              mlir::MLIRContext &context);

// A module as text, as `xfc compile --emit imported` prints it, without the programs that the options leave out. `file`
// names it in messages: every location keeps its name and points into the file besides. Null after diagnostics where
// the text is no module, does not verify, or is no model that can be compiled with these options.
mlir::OwningOpRef<mlir::ModuleOp> importModule(std::string_view text, std::string_view file,
                                               const ImportOptions &options, mlir::MLIRContext &context);

// The module as text that importModule() reads: with the names of its locations, but nothing of the file they point
// into.
std::string printModule(mlir::ModuleOp module);

} // namespace xfc
