// Lays out all parameters in one block.
#include "Analysis/ParameterLayout.h"
#include "Dialect/Values.h"
#include "Passes.h"
#include "plan/Optimizers.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_LAYOUTPARAMETERS
#include "Schedule/Passes.h.inc"

namespace {

// The states that optimizers keep for each parameter, in the order in which they first appear as arguments of programs.
SmallVector<StringRef> statesOf(ModuleOp module) {
  llvm::SetVector<StringRef> states;
  for (auto function : module.getOps<FunctionOpInterface>())
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (auto role = function.getArgAttrOfType<StringAttr>(i, attr::role))
        if (llvm::is_contained(optimizerStates(), std::string_view(role.getValue())))
          states.insert(role.getValue());
  return states.takeVector();
}

struct LayOutParameters : impl::LayOutParametersBase<LayOutParameters> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    const FailureOr<DType> type = floatTypeOf(module);
    if (failed(type))
      return signalPassFailure();
    std::vector<ParameterLayout::Parameter> parameters;
    Operation *last = nullptr;
    for (auto parameter : module.getOps<ParameterOp>()) {
      parameters.push_back({parameter.getName().str(), cast<RankedTensorType>(parameter.getType()).getNumElements()});
      last = parameter;
    }
    FailureOr<ParameterLayout> layout = ParameterLayout::of(module, parameters, bytesOf(*type));
    if (failed(layout))
      return signalPassFailure();

    OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
    if (last)
      builder.setInsertionPointAfter(last);
    auto block = ParametersOp::create(builder, module.getLoc(), layout->elements(), elementType(&getContext(), *type),
                                      builder.getStrArrayAttr(statesOf(module)));
    builder.createBlock(&block.getBody());
    for (const ParameterLayout::Parameter &parameter : layout->parameters())
      OffsetOp::create(builder, module.getLoc(), parameter.name, parameter.offset);
    SymbolTable symbols(module);
    for (StringRef state : statesOf(module))
      if (!likeParameters(std::string_view(state)))
        layOutState(builder, state, *layout, symbols, *type);
  }

private:
  // Lays out the tensors of a state in the order of their parameters, each from a cache line on.
  void layOutState(OpBuilder &builder, StringRef state, const ParameterLayout &layout, const SymbolTable &symbols,
                   DType type) {
    const int64_t line = ParameterLayout::alignment / bytesOf(type);
    OpBuilder::InsertionGuard guard(builder);
    auto op = StateOp::create(builder, getOperation().getLoc(), state, 0);
    builder.createBlock(&op.getBody());
    int64_t next = 0;
    for (const ParameterLayout::Parameter &parameter : layout.parameters()) {
      const Extents shape =
          cast<RankedTensorType>(symbols.lookup<ParameterOp>(parameter.name).getType()).getShape().vec();
      if (const std::optional<Extents> own = shapeOfState(std::string_view(state), shape)) {
        PartOp::create(builder, getOperation().getLoc(), parameter.name, *own, next);
        next = llvm::alignTo(next + elementsOf(*own), line);
      }
    }
    op.setElements(std::max(next, line)); // memory of no size cannot be allocated
  }
};

} // namespace
} // namespace xfc
