// Records what each pass of a compilation does to the program, as text, for people to look at.
#pragma once

#include "llvm/ADT/MapVector.h"
#include <map>
#include <string>
#include <vector>

namespace mlir {
class ModuleOp;
class PassManager;
} // namespace mlir

namespace xfc {

// The text of each function and other symbol of a module by its name, in order, but not the code of kernels, which is
// the module within a plan. What has no name, and the module's own attributes, stand under "module".
using ModuleText = llvm::MapVector<std::string, std::string, std::map<std::string, unsigned>>;
ModuleText textOf(mlir::ModuleOp module);

// The text of a symbol before and after a pass. A text is empty if the symbol did not exist then.
struct SymbolChange {
  std::string symbol, before, after;
};
// Everything that a pass changed. A pass that runs on each function in turn has one record for all of them.
struct PassRecord {
  std::string stage, pass; // as `xfc compile --timing` and xfc-opt name them
  std::vector<SymbolChange> changes;
};
struct StageRecord {
  std::string stage;
  ModuleText text; // after it
};

struct PassHistory {
  std::vector<PassRecord> passes;  // in the order in which they first ran
  std::vector<StageRecord> stages; // imported, fused, differentiated, scheduled

  // Has the manager record its passes here. Both must outlive its run, in a context without threads.
  void record(mlir::PassManager &manager, const std::string &stage);
};

} // namespace xfc
