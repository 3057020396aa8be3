// Turns a model description, or a module in textual form, into an xfc module: one function for each program a user can
// run, nothing fused.
#pragma once

#include "Description.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace xfc {

// Which attention the links of an alignment guide in the program `loss` (xfc.alignment_loss).
struct GuidedAlignment {
  int64_t links = 0;            // at most so many for each label; 0: none
  std::optional<int64_t> layer; // of the decoder, from 0: its last cross-attention; none: that of the decoder
  std::optional<int64_t> head;  // from 0; none: the mean of all heads
};

struct ImportOptions {
  bool train = true, decode = true; // --mode
  bool f64 = false;                 // --dtype f64
  int64_t distillation = 0;         // --distillation: tokens of a teacher for each label in the loss
  GuidedAlignment guided;           // --guided-alignment
};

// Makes a valid module from a description. compiler/README.md describes its functions, their arguments and results.
// Throws Error if the model has no attention that the options want to guide.
mlir::OwningOpRef<mlir::ModuleOp> importModel(const Description &description, const ImportOptions &options,
                                              mlir::MLIRContext &context);

// Parses a module that `xfc compile` printed. `file` names it in messages: every location keeps its name and also
// points into the file. Returns null, after diagnostics, if the text is not a module or does not verify.
mlir::OwningOpRef<mlir::ModuleOp> parseModule(std::string_view text, std::string_view file, mlir::MLIRContext &context);

// Checks a module that `--emit imported` printed, and drops the programs that the options leave out. Returns false,
// after diagnostics, if it is not a model that can be compiled with these options.
bool prepareModel(mlir::ModuleOp module, const ImportOptions &options);

// Prints the module as text that parseModule() reads. Locations keep their names but not their positions in a file.
std::string printModule(mlir::ModuleOp module);

} // namespace xfc
