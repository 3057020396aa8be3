// Prints the compiler's diagnostics as messages.
#pragma once

#include "mlir/IR/Diagnostics.h"

namespace xfc {

// While it lives, diagnostics of the context are printed: each on one line, which begins with a place in a file or a
// name, and quotes no more of a foreign file than other messages do. MLIR's own handler opens the file that a location
// names, whatever file a module names there, and prints the whole line.
class Diagnostics : public mlir::ScopedDiagnosticHandler {
public:
  explicit Diagnostics(mlir::MLIRContext &context);
};

} // namespace xfc
