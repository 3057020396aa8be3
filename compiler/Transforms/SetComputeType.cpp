// Makes products round their operands before they multiply, in place or in copies of functions.
#include "Dialect/XFC.h"
#include "Passes.h"
#include "mlir/IR/SymbolTable.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_SETCOMPUTETYPE
#include "Transforms/Passes.h.inc"

namespace {

struct SetComputeType : impl::SetComputeTypeBase<SetComputeType> {
  using SetComputeTypeBase::SetComputeTypeBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (variants.empty()) {
      for (auto function : module.getOps<func::FuncOp>())
        mark(function);
      module->setAttr(attr::compute, StringAttr::get(&getContext(), stringifyComputeType(type)));
      return;
    }
    for (const std::string &name : variants) {
      auto function = module.lookupSymbol<func::FuncOp>(name);
      if (!function) // a model without decoding
        continue;
      auto variant = cast<func::FuncOp>(function->clone());
      variant.setName((Twine(name) + "." + stringifyComputeType(type)).str());
      module.push_back(variant);
      mark(variant);
    }
  }

private:
  template <typename Op> bool excludes(Op op) const {
    return op && (!attention || !op.computesIn(type) || std::min(op.getKeyDim(), op.getValueDim()) < attention);
  }
  void mark(func::FuncOp function) {
    function.walk([&](ProductOpInterface product) {
      Operation *op = product;
      if (excludes(dyn_cast<AttentionOp>(op)) || excludes(dyn_cast<AttentionGradOp>(op)))
        return;
      product.setComputeAttr(ComputeTypeAttr::get(&getContext(), type));
      if (failed(verifyComputeType(product)))
        signalPassFailure();
      ++changed;
    });
  }
};

} // namespace
} // namespace xfc
