// The plain kernels of the optimizer's ops.
#include "Lowerings.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>

using namespace mlir;

namespace xfc {

static void lowerPlainOp(SquareSumOp op, PlainBuilder &b) {
  Number elements = b.immediate(0),
         parts = (elements + (SquareSumOp::elementsOfPart - 1)) / SquareSumOp::elementsOfPart;
  Value tensors = b.dense(0, elements), sums = b.dense(op.getNumOperands(), parts);
  b.forEach(parts, [&](const Number &p) {
    Number begin = p * SquareSumOp::elementsOfPart;
    Value part = b.slice(tensors, {{begin, min(SquareSumOp::elementsOfPart, elements - begin)}});
    b.store(b.reduce("i->", part, b.f64(0), [&](auto v) { return v[1] + b.f64(v[0]) * b.f64(v[0]); }), sums, {p});
  });
}

static void lowerPlainOp(ClipFactorOp op, PlainBuilder &b) {
  Number limit = b.f64(b.load(b.operand(0))), squares = b.f64(0);
  for (unsigned i = 1; i < op.getNumOperands(); ++i)
    squares = b.reduce("i->", b.operand(i), squares, [](auto v) { return v[1] + v[0]; });
  Number norm = sqrt(squares);
  b.store(select((limit > 0) & (norm > limit), limit / norm, 1), b.result(0));
  b.store(norm, b.result(1));
}

// An optimizer step reads and writes hyperparameters by name, and blocks, each with all tensors of a group.
struct PlainStep {
  PlainBuilder &b;
  llvm::function_ref<Number(StringRef)> hyper;
  Number factor;
  Value parameters, gradients;
  ArrayRef<Value> states;

  // An element of the gradient after scaling and clipping.
  Number clipped(const Number &given) const {
    Number limit = hyper("limit"), scaled = factor * given;
    return select(scaled > limit, limit, select(scaled < 0 - limit, 0 - limit, scaled));
  }
};

static void adam(const PlainStep &step) {
  const Value p = step.parameters, m = step.states[0], v = step.states[1];
  Number rate = step.hyper("rate"), beta1 = step.hyper("beta1"), beta2 = step.hyper("beta2"),
         epsilon = step.hyper("epsilon"), l2 = step.hyper("l2"), decay = step.hyper("decay"),
         correction1 = step.hyper("correction1"), correction2 = step.hyper("correction2");
  auto gradient = [&](const Number &parameter, const Number &given) { return step.clipped(given) + l2 * parameter; };
  step.b.elementwise({p, step.gradients}, m, [&](auto x) { return beta1 * x[2] + (1 - beta1) * gradient(x[0], x[1]); });
  step.b.elementwise({p, step.gradients}, v, [&](auto x) {
    Number g = gradient(x[0], x[1]);
    return beta2 * x[2] + (1 - beta2) * g * g;
  });
  step.b.elementwise({m, v}, p, [&](auto x) {
    return x[2] - (rate * decay * x[2] + rate * (x[0] / correction1) / (sqrt(x[1] / correction2) + epsilon));
  });
}

static void sgd(const PlainStep &step) {
  Number rate = step.hyper("rate"), momentum = step.hyper("momentum"), l2 = step.hyper("l2");
  step.b.elementwise({step.parameters, step.gradients}, step.states[0],
                     [&](auto x) { return momentum * x[2] + (step.clipped(x[1]) + l2 * x[0]); });
  step.b.elementwise({step.states[0]}, step.parameters, [&](auto x) { return x[1] - rate * x[0]; });
}

static void lion(const PlainStep &step) {
  const Value m = step.states[0];
  Number rate = step.hyper("rate"), beta1 = step.hyper("beta1"), beta2 = step.hyper("beta2"),
         decay = step.hyper("decay");
  step.b.elementwise({m, step.gradients}, step.parameters, [&](auto x) {
    Number direction = beta1 * x[0] + (1 - beta1) * step.clipped(x[1]);
    Number move = select(direction > 0, rate, select(direction < 0, 0 - rate, 0));
    return x[2] - (move + rate * decay * x[2]);
  });
  step.b.elementwise({step.gradients}, m, [&](auto x) { return beta2 * x[1] + (1 - beta2) * step.clipped(x[0]); });
}

static void lowerPlainOp(OptimizeOp op, PlainBuilder &b) {
  const Number elements = b.immediate(0);
  auto block = [&](OperandRange tensors) { return b.dense(tensors.getBeginOperandIndex(), elements); };
  const Value hyper = b.operand(0);
  auto scalar = [&](StringRef name) { return b.load(hyper, {static_cast<int>(op.getHyperIndex(name))}); };
  SmallVector<Value> states;
  for (unsigned i = 0; i < op.getNumStates(); ++i)
    states.push_back(block(op.getState(i)));
  const PlainStep step{b, scalar, b.load(b.operand(1)), block(op.getParameters()), block(op.getGradients()), states};
  StringRef rule = op.getRule();
  const bool averages = rule.consume_back("_ema");
  llvm::StringSwitch<void (*)(const PlainStep &)>(rule).Case("adam", adam).Case("sgd", sgd).Case("lion", lion)(step);
  if (averages)
    b.elementwise({step.parameters}, states.back(), [&](auto x) { return x[1] + scalar("weight") * (x[0] - x[1]); });
}

void attachOptimizerLowerings(MLIRContext &context) { attachLowerings<SquareSumOp, ClipFactorOp, OptimizeOp>(context); }

} // namespace xfc
