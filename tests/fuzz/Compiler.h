// Shared by the fuzz targets of the compiler: an MLIR context, and a handler that discards diagnostics.
#pragma once

#include "Fuzz.h"
#include "Pipeline/Pipeline.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include <memory>

namespace xfc::fuzz {

// Calls work(context). Types and attributes live as long as their context, so a new one is created now and then.
template <typename Work> void withContext(Work work) {
  static std::unique_ptr<mlir::MLIRContext> context;
  static int runs = 0;
  if (!context || ++runs % 500 == 0) {
    context = std::make_unique<mlir::MLIRContext>(mlir::MLIRContext::Threading::DISABLED);
  }
  mlir::ScopedDiagnosticHandler quiet(context.get(), [](mlir::Diagnostic &diagnostic) {
    expect(!diagnostic.str().empty(), "a diagnostic says something");
    return mlir::success();
  });
  work(*context);
}

} // namespace xfc::fuzz
