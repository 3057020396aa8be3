// @loss into @loss_and_gradients: reverse-mode differentiation, which asks an interface and knows no op.
#include "Dialect/XFC.h"
#include "Passes.h"
#include "plan/Programs.h"
#include "llvm/ADT/BitVector.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_DIFFERENTIATE
#include "Transforms/Passes.h.inc"

namespace {

struct Differentiate : impl::DifferentiateBase<Differentiate> {
  void runOnOperation() override {
    auto function = getOperation().lookupSymbol<func::FuncOp>(programs::loss);
    if (function && failed(differentiate(function)))
      signalPassFailure();
  }

private:
  StringRef nameOfArgument(func::FuncOp function, unsigned i) {
    auto name = function.getArgAttrOfType<StringAttr>(i, attr::name);
    return name ? name.getValue() : "";
  }

  // Marks all that depends on a parameter: nothing else needs a gradient.
  void activate(func::FuncOp function, Gradients &gradients) {
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (auto role = function.getArgAttrOfType<StringAttr>(i, attr::role); role && role.getValue() == attr::parameter)
        gradients.activate(function.getArgument(i));
    for (Operation &op : function.getBody().front())
      if (llvm::any_of(op.getOperands(), [&](Value operand) { return gradients.wanted(operand); }))
        for (Value result : op.getResults())
          gradients.activate(result);
  }

  LogicalResult differentiate(func::FuncOp function) {
    if (!function.getBody().hasOneBlock())
      return function.emitOpError("must have one block to be differentiated");
    auto exit = cast<func::ReturnOp>(function.getBody().front().getTerminator());
    auto lossType = exit.getNumOperands() ? dyn_cast<RowsType>(exit.getOperand(0).getType()) : RowsType();
    if (!lossType || !lossType.getElementType().isFloat())
      return function.emitOpError("must return the loss of each row as its first result");

    OpBuilder builder(exit);
    Gradients gradients(builder);
    activate(function, gradients);
    SmallVector<Operation *> forward;
    for (Operation &op : function.getBody().front().without_terminator())
      forward.push_back(&op);

    gradients.add(exit.getOperand(0), addLossScale(function, lossType, builder));
    for (Operation *op : llvm::reverse(forward)) {
      if (llvm::none_of(op->getResults(),
                        [&](Value result) { return gradients.of(result) && gradients.wanted(result); }))
        continue;
      auto differentiable = dyn_cast<DifferentiableOpInterface>(op);
      if (!differentiable)
        return op->emitOpError("cannot be differentiated");
      if (failed(differentiable.differentiate(builder, gradients)))
        return failure();
      ++differentiated;
    }
    eraseUnusedOps(forward);
    finish(function, exit, gradients, builder);
    return success();
  }

  // The gradient of each row's loss, an input: its weight over the number of labels of the whole step.
  Value addLossScale(func::FuncOp function, RowsType lossType, OpBuilder &builder) {
    unsigned index = function.getNumArguments();
    DictionaryAttr attributes =
        builder.getDictionaryAttr({builder.getNamedAttr(attr::name, builder.getStringAttr(names::lossScale)),
                                   builder.getNamedAttr(attr::role, builder.getStringAttr(attr::input))});
    (void)function.insertArgument(index, lossType, attributes, function.getLoc());
    return function.getArgument(index);
  }

  // Computations that reach no result, as an encoder that no decoder attends to.
  void eraseUnusedOps(ArrayRef<Operation *> forward) {
    for (Operation *op : llvm::reverse(forward))
      if (op->use_empty())
        op->erase();
  }

  // Returns the gradients after loss and nll. A parameter that the loss does not depend on has none.
  void finish(func::FuncOp function, func::ReturnOp exit, const Gradients &gradients, OpBuilder &builder) {
    SmallVector<Value> results(exit.getOperands());
    llvm::BitVector unused(function.getNumArguments());
    SmallVector<DictionaryAttr> attributes;
    function.getAllResultAttrs(attributes);
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      Value parameter = function.getArgument(i);
      if (!gradients.wanted(parameter))
        continue;
      if (Value gradient = gradients.of(parameter)) {
        StringAttr name = builder.getStringAttr(names::gradientOf + nameOfArgument(function, i));
        attributes.push_back(builder.getDictionaryAttr(builder.getNamedAttr(attr::name, name)));
        results.push_back(gradient);
      }
      unused[i] = parameter.use_empty();
    }
    exit.getOperandsMutable().assign(results);
    (void)function.eraseArguments(unused);
    function.setFunctionType(
        builder.getFunctionType(function.getBody().getArgumentTypes(), ValueRange(results).getTypes()));
    function.setAllResultAttrs(attributes);
    function.setName(programs::lossAndGradients);
  }
};

} // namespace
} // namespace xfc
