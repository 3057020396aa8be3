// Fuzzes the import of model.json: an accepted description gives a module that verifies.
#include "../JsonMutator.h"
#include "Compiler.h"
#include "Import/Description.h"
#include "Import/Import.h"

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::expectOnlyErrors([&] {
    const Description description = parseDescription(fuzz::textOf(data, size), "model.json");
    fuzz::withContext([&](mlir::MLIRContext &context) {
      const mlir::OwningOpRef<mlir::ModuleOp> module = importModel(description, {}, context);
      fuzz::expect(module && mlir::succeeded(mlir::verify(*module)), "what is imported verifies");
      // The canonical description describes the same model.
      fuzz::expect(parseDescription(description.canonical, "canonical").canonical == description.canonical,
                   "the canonical description is its own");
    });
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  return fuzz::replaced(data, size, most, fuzz::JsonMutator(seed).change(fuzz::textOf(data, size), most));
}
