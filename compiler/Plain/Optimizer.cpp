// The plain kernels of the optimizer's ops.
#include "Lowerings.h"
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

// Tensors of a group lie behind each other, from the first on, and are updated where they are.
static void lowerPlainOp(AdamOp op, PlainBuilder &b) {
  const unsigned n = op.getParameters().size();
  Number elements = b.immediate(0), factor = b.load(b.operand(1));
  Value p = b.dense(2, elements), gradients = b.dense(2 + n, elements), m = b.dense(2 + 2 * n, elements),
        v = b.dense(2 + 3 * n, elements);
  Value hyper = b.operand(0);
  auto at = [&](int i) { return b.load(hyper, {i}); };
  Number lr = at(0), beta1 = at(1), beta2 = at(2), eps = at(3), l2 = at(4), decay = at(5), correction1 = at(6),
         correction2 = at(7);
  auto gradient = [&](const Number &parameter, const Number &given) { return factor * given + l2 * parameter; };
  b.elementwise({p, gradients}, m, [&](auto x) { return beta1 * x[2] + (1 - beta1) * gradient(x[0], x[1]); });
  b.elementwise({p, gradients}, v, [&](auto x) {
    Number g = gradient(x[0], x[1]);
    return beta2 * x[2] + (1 - beta2) * g * g;
  });
  b.elementwise({m, v}, p, [&](auto x) {
    return x[2] - (lr * decay * x[2] + lr * (x[0] / correction1) / (sqrt(x[1] / correction2) + eps));
  });
}

void attachOptimizerLowerings(MLIRContext &context) { attachLowerings<SquareSumOp, ClipFactorOp, AdamOp>(context); }

} // namespace xfc
