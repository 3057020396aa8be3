// Prints the compiler's diagnostics as messages.
#include "Diagnostics.h"
#include "mlir/IR/Location.h"
#include "mlir/IR/MLIRContext.h"
#include "support/Quoted.h"
#include "support/Terminal.h"
#include <cstdio>
#include <string>

using namespace mlir;

namespace xfc {

// "model.mlir:3:5: ", or "tiny: ", the name of what is meant; nothing if neither is known.
static std::string placeOf(Location location) {
  if (auto position = location->findInstanceOf<FileLineColLoc>())
    return position.getFilename().str() + ":" + std::to_string(position.getLine()) + ":" +
           std::to_string(position.getColumn()) + ": ";
  if (auto named = location->findInstanceOf<NameLoc>())
    return named.getName().str() + ": ";
  return "";
}

static void print(const Diagnostic &diagnostic) {
  const MessageKind kind = diagnostic.getSeverity() == DiagnosticSeverity::Error     ? MessageKind::Error
                           : diagnostic.getSeverity() == DiagnosticSeverity::Warning ? MessageKind::Warning
                                                                                     : MessageKind::Note;
  std::fprintf(stderr, "%s%s: %s\n", oneLine(placeOf(diagnostic.getLocation())).c_str(), nameOf(kind),
               oneLine(diagnostic.str()).c_str());
}

Diagnostics::Diagnostics(MLIRContext &context)
    : ScopedDiagnosticHandler(&context, [](Diagnostic &diagnostic) {
        print(diagnostic);
        for (const Diagnostic &note : diagnostic.getNotes())
          print(note);
      }) {
  context.printOpOnDiagnostic(false); // the place says where it stands
}

} // namespace xfc
