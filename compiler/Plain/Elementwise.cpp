// The plain kernels of elementwise ops.
#include "Lowerings.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;

namespace xfc {

namespace {

// Uses the C library's functions where the targets have their own.
class Scalars : public CodeBuilder {
public:
  Scalars(ModuleOp module, Type element) : CodeBuilder(module, element, /*addressSpace=*/0, /*constantCalls=*/false) {}
  Value exp(Value x) override { return math::ExpOp::create(b, x); }
  Value tanh(Value x) override { return math::TanhOp::create(b, x); }
  Value erf(Value x) override { return math::ErfOp::create(b, x); }
};

} // namespace

void lowerElementwise(PlainBuilder &b, ModuleOp module, ScalarOpInterface op) {
  Scalars scalars(module, b.element);
  SmallVector<Value> operands;
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    operands.push_back(b.operand(i));
  b.elementwise(operands, b.result(0), [&](ArrayRef<Number> v) -> Number {
    scalars.b.setInsertionPoint(b.b.getInsertionBlock(), b.b.getInsertionPoint());
    SmallVector<Value> numbers;
    for (const Number &x : v.drop_back()) // the last is the result's old value
      numbers.push_back(x.value);
    return {b, op.emitScalar(scalars, numbers)};
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// activation, activation_grad: independent formulas, to compare the scalar functions of kernels with
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(ActivationOp op, PlainBuilder &b) {
  Value y = b.result(0);
  b.elementwise(b.operand(0), y, [&](ArrayRef<Number> v) -> Number {
    const Number &x = v[0];
    switch (op.getKind()) {
    case ActivationKind::relu:
      return select(x > 0, x, 0);
    case ActivationKind::gelu: {
      const Number scale = 1 + erf(x * M_SQRT1_2);
      return 0.5 * x * scale;
    }
    case ActivationKind::silu:
      return x / (1 + exp(0 - x));
    case ActivationKind::tanh:
      return tanh(x);
    case ActivationKind::gelu_tanh: {
      const Number scale = 1 + tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
      return 0.5 * x * scale;
    }
    case ActivationKind::squared_relu: {
      const Number square = x * x;
      return select(x > 0, square, 0);
    }
    }
    llvm_unreachable("every activation is listed");
  });
}

static void lowerPlainOp(ActivationGradOp op, PlainBuilder &b) {
  Value dx = b.result(0);
  b.elementwise({b.operand(0), b.operand(1)}, dx, [&](ArrayRef<Number> v) -> Number {
    const Number &dy = v[0], &x = v[1];
    switch (op.getKind()) {
    case ActivationKind::relu:
      return select(x > 0, dy, 0);
    case ActivationKind::gelu: {
      const Number ofErf = x * exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
      return dy * (0.5 * (1 + erf(x * M_SQRT1_2)) + ofErf);
    }
    case ActivationKind::silu: {
      Number sigmoid = 1 / (1 + exp(0 - x));
      const Number factor = 1 + x * (1 - sigmoid);
      return dy * sigmoid * factor;
    }
    case ActivationKind::tanh: {
      Number t = tanh(x);
      return dy * (1 - t * t);
    }
    case ActivationKind::gelu_tanh: {
      Number t = tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
      Number slope = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * min(x * x, 1e4)); // beyond this, t is 1 or -1
      const Number steepness = 1 - t * t, ofTanh = 0.5 * x * steepness * slope;
      return dy * (0.5 * (1 + t) + ofTanh);
    }
    case ActivationKind::squared_relu: {
      const Number slope = 2 * x;
      return dy * select(x > 0, slope, 0);
    }
    }
    llvm_unreachable("every activation is listed");
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// dropout, zeros
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(DropoutOp op, PlainBuilder &b) {
  const double rate = op.getRate().convertToDouble();
  Value x = b.operand(0), y = b.result(0), positions = b.positions(), sentences = b.sentences();
  auto pairs = dyn_cast<PairsType>(op.getType());
  if (op.getKept())
    return b.elementwise({x}, y, [&](auto v) { return b.keptByDropout(v[0], rate); });
  if (!pairs)
    return b.generic("ij,i,i->ij", {x, positions, b.sequenceOf()}, y, [&](auto v) {
      const Number feature = b.loop('j');
      return b.dropout(v[0], rate, b.load(sentences, {v[2]}), v[1], feature);
    });
  Value keyPositions = b.positions(PlainBuilder::Of::Keys);
  b.forEachHead(pairs, [&](const PlainBuilder::Head &head) {
    Number sentence = b.load(sentences, {head.sequence});
    Value dropped = head.of(y);
    b.generic("ij,i,j->ij", {head.of(x), head.queries(positions), head.keyRows()}, dropped,
              [&](auto v) { return b.dropout(v[0], rate, sentence, v[1], b.load(keyPositions, {v[2]}), head.head); });
  });
}

static void lowerPlainOp(ZerosOp, PlainBuilder &b) { b.fill(b.result(0), 0); }

void attachElementwiseLowerings(MLIRContext &context) {
  attachLowerings<ActivationOp, ActivationGradOp, DropoutOp, ZerosOp>(context);
}

} // namespace xfc
