// Epilogues of products.
#include "Epilogue.h"
#include "Activation.h"

using namespace mlir;

namespace xfc {

SmallVector<Value> evaluateEpilogue(CodeBuilder &k, Region &region, ArrayRef<Value> arguments, Value dropoutFactor) {
  llvm::DenseMap<Value, Value> values;
  for (auto [argument, value] : llvm::zip_equal(region.front().getArguments(), arguments))
    values[argument] = value;
  for (Operation &op : region.front()) {
    auto operand = [&](unsigned i) { return values.lookup(op.getOperand(i)); };
    if (isa<YieldOp>(op)) {
      SmallVector<Value> yielded;
      for (Value value : op.getOperands())
        yielded.push_back(values.lookup(value));
      return yielded;
    }
    Value result;
    if (isa<AddOp>(op))
      result = k.addf(operand(0), operand(1));
    else if (isa<MultiplyOp>(op))
      result = k.mulf(operand(0), operand(1));
    else if (auto activation = dyn_cast<ActivationOp>(op))
      result = activationOf(k, activation.getKind(), operand(0));
    else if (auto grad = dyn_cast<ActivationGradOp>(op))
      result = activationGradOf(k, grad.getKind(), operand(0), operand(1));
    else
      result = k.mulf(operand(0), dropoutFactor);
    values[op.getResult(0)] = result;
  }
  llvm_unreachable("the verifier wants a yield");
}

DropoutOp dropoutOf(Region &epilogue) {
  if (!epilogue.empty())
    for (auto dropout : epilogue.getOps<DropoutOp>())
      return dropout;
  return {};
}

} // namespace xfc
