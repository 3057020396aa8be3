// The optimizer's ops: verification and memory effects.
#include "Support.h"
#include "plan/Optimizers.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace xfc;

LogicalResult SquareSumOp::verify() {
  if (getTensors().empty())
    return emitOpError("needs at least one tensor");
  if (getType().getRank() != 1 || getType().getDimSize(0) < 1)
    return emitOpError("result must have one dimension and at least one element, found ") << getType();
  return success();
}

LogicalResult ClipFactorOp::verify() {
  for (Value sums : getSums())
    if (cast<RankedTensorType>(sums.getType()).getRank() != 1)
      return emitOpError("sums must have one dimension, found ") << sums.getType();
  return success();
}

LogicalResult OptimizeOp::verify() {
  const Optimizer *optimizer = findRule(getRule());
  if (!optimizer) {
    llvm::SetVector<StringRef> rules;
    for (const Optimizer &known : optimizers())
      rules.insert(known.rule);
    return emitOpError("there is no rule \"") << getRule() << "\"; expected one of " << llvm::join(rules, ", ");
  }
  const size_t n = getParameters().size(), states = optimizer->states.size();
  if (n == 0)
    return emitOpError("needs at least one parameter");
  if (getGradients().size() != n || getStates().size() != states * n || getNumResults() != (1 + states) * n)
    return emitOpError("with ") << n << " parameters needs " << n << " gradients, " << states * n << " states and "
                                << (1 + states) * n << " results, found " << getGradients().size() << ", "
                                << getStates().size() << " and " << getNumResults();
  for (ValueRange values : {ValueRange(getGradients()), ValueRange(getStates()), ValueRange(getUpdated())})
    for (auto [i, value] : llvm::enumerate(values))
      if (value.getType() != getParameters()[i % n].getType())
        return emitOpError("every operand and result of parameter ")
               << i % n << " must be " << getParameters()[i % n].getType() << ", found " << value.getType();
  const auto scalars = static_cast<int64_t>(optimizer->hyper.size());
  if (getHyper().getType().getShape() != ArrayRef<int64_t>{scalars})
    return emitOpError("hyper must have ") << scalars << " elements, found " << getHyper().getType();
  return success();
}

// Each new parameter and state overwrites the old one.
int64_t OptimizeOp::getInPlaceOperand(unsigned result) {
  const unsigned n = getParameters().size();
  return result < n ? getParameters().getBeginOperandIndex() + result : getStates().getBeginOperandIndex() + result - n;
}

int64_t OptimizeOp::getHyperIndex(StringRef name) {
  const auto &hyper = findRule(getRule())->hyper;
  const auto found = llvm::find_if(
      hyper, [&](const Optimizer::Hyperparameter &known) { return known.name == std::string_view(name); });
  assert(found != hyper.end() && "the optimizer has no such hyperparameter");
  return found - hyper.begin();
}

void OptimizeOp::getEffects(SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  if (getPacks())
    effects.emplace_back(MemoryEffects::Write::get(), PackedWeights::get());
}
