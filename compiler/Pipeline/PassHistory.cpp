// Records what each pass of a compilation does to the program.
#include "PassHistory.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/DenseMap.h"
#include <memory>

using namespace mlir;

namespace xfc {
namespace {

constexpr llvm::StringRef unnamedSymbol = "module";

// How ops are printed: without aliases, which only whole modules define, and without verifying.
OpPrintingFlags printingFlags() { return OpPrintingFlags().useLocalScope().assumeVerified(); }

std::string printed(Operation *op, AsmState &state) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  op->print(stream, state);
  stream << "\n";
  return text;
}

class PassRecorder : public PassInstrumentation {
public:
  PassRecorder(PassHistory &history, std::string stage) : history(history), stage(std::move(stage)) {}

  void runBeforePass(Pass *, Operation *op) override {
    if (current.empty())
      if (auto module = dyn_cast<ModuleOp>(op))
        current = textOf(module);
  }
  void runAfterPass(Pass *pass, Operation *op) override {
    if (pass->getArgument().empty()) // runs the passes of functions, which are recorded themselves
      return;
    const auto [found, isNew] = records.try_emplace(pass, history.passes.size());
    if (isNew)
      history.passes.push_back({stage, pass->getArgument().str(), {}});
    std::vector<SymbolChange> &changes = history.passes[found->second].changes;
    if (auto module = dyn_cast<ModuleOp>(op)) {
      ModuleText next = textOf(module);
      for (const auto &[symbol, text] : next)
        if (const std::string before = current.lookup(symbol); before != text)
          changes.push_back({symbol, before, text});
      for (const auto &[symbol, text] : current)
        if (!next.contains(symbol) && !text.empty())
          changes.push_back({symbol, text, ""});
      current = std::move(next);
    } else if (auto name = op->getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName())) {
      AsmState state(op, printingFlags());
      std::string text = printed(op, state), &before = current[name.str()];
      if (before != text)
        changes.push_back({name.str(), std::exchange(before, text), text});
    }
  }

private:
  PassHistory &history;
  const std::string stage;
  ModuleText current;
  llvm::DenseMap<Pass *, size_t> records;
};

} // namespace

ModuleText textOf(ModuleOp module) {
  AsmState state(module, printingFlags()); // numbers the values of all ops once
  ModuleText texts;
  std::string unnamed;
  for (NamedAttribute attribute : module->getDiscardableAttrs())
    llvm::raw_string_ostream(unnamed) << attribute.getName().getValue() << " = " << attribute.getValue() << "\n";
  texts[unnamedSymbol.str()] = unnamed;
  for (Operation &op : *module.getBody()) {
    if (isa<ModuleOp>(op)) // the kernels' code, of millions of characters
      continue;
    auto name = op.getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName());
    texts[name ? name.str() : unnamedSymbol.str()] += printed(&op, state);
  }
  return texts;
}

void PassHistory::record(PassManager &manager, const std::string &stage) {
  manager.addInstrumentation(std::make_unique<PassRecorder>(*this, stage));
}

} // namespace xfc
