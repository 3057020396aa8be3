// Evaluates elementwise ops, and epilogues made of them, on scalars or vectors.
#include "Elementwise.h"

using namespace mlir;

#include "Codegen/ScalarInterface.cpp.inc"

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// add, multiply, scale
//===--------------------------------------------------------------------------------------------------------===//

static Value emitScalarOf(AddOp, CodeBuilder &k, ArrayRef<Value> operands) { return k.addf(operands[0], operands[1]); }

static Value emitScalarOf(MultiplyOp, CodeBuilder &k, ArrayRef<Value> operands) {
  return k.mulf(operands[0], operands[1]);
}

static Value emitScalarOf(ScaleOp op, CodeBuilder &k, ArrayRef<Value> operands) {
  return k.mulf(operands[0], op.getFactor().convertToDouble());
}

//===--------------------------------------------------------------------------------------------------------===//
// activation, activation_grad
//===--------------------------------------------------------------------------------------------------------===//

Value logistic(CodeBuilder &k, Value x) { return k.divf(1, k.addf(1, k.exp(k.subf(0, x)))); }

// The cumulative distribution function of the normal distribution, (1 + erf(x / sqrt(2))) / 2.
static Value normal(CodeBuilder &k, Value x) { return k.fma(0.5, k.erf(k.mulf(x, 0.70710678118654752440)), 0.5); }

// tanh(sqrt(2/pi) (x + 0.044715 x^3)).
static Value tanhOfGelu(CodeBuilder &k, Value x) {
  Value cubic = k.fma(k.mulf(x, x), 0.044715, 1);
  return k.tanh(k.mulf(k.mulf(x, 0.79788456080286535588), cubic));
}

static Value emitScalarOf(ActivationOp op, CodeBuilder &k, ArrayRef<Value> operands) {
  Value x = operands[0];
  switch (op.getKind()) {
  case ActivationKind::relu:
    return k.maxf(x, k.constant(0, x));
  case ActivationKind::gelu:
    return k.mulf(x, normal(k, x));
  case ActivationKind::silu:
    return k.mulf(x, logistic(k, x));
  case ActivationKind::tanh:
    return k.tanh(x);
  case ActivationKind::gelu_tanh: {
    Value half = k.mulf(x, 0.5);
    return k.fma(half, tanhOfGelu(k, x), half);
  }
  case ActivationKind::squared_relu: {
    Value positive = k.maxf(x, k.constant(0, x));
    return k.mulf(positive, positive);
  }
  }
  llvm_unreachable("every activation is listed");
}

static Value emitScalarOf(ActivationGradOp op, CodeBuilder &k, ArrayRef<Value> operands) {
  Value dy = operands[0], x = operands[1];
  switch (op.getKind()) {
  case ActivationKind::relu:
    return k.select(k.lessf(0, x), dy, 0);
  case ActivationKind::gelu: {
    // cdf(x) + x pdf(x)
    Value density = k.mulf(k.exp(k.mulf(k.mulf(x, x), -0.5)), 0.39894228040143267794);
    return k.mulf(dy, k.fma(x, density, normal(k, x)));
  }
  case ActivationKind::silu: {
    Value s = logistic(k, x);
    return k.mulf(dy, k.mulf(s, k.fma(x, k.subf(1, s), 1)));
  }
  case ActivationKind::tanh: {
    Value t = k.tanh(x);
    return k.mulf(dy, k.subf(1, k.mulf(t, t)));
  }
  case ActivationKind::gelu_tanh: {
    // (1 + t) / 2 + x (1 - t^2) u' / 2. x^2 is clamped so that it cannot overflow; t is 1 or -1 long before that.
    Value t = tanhOfGelu(k, x), square = k.mulf(x, x), large = k.constant(1e4, x);
    square = k.select(k.lessf(square, large), square, large);
    Value slope = k.fma(square, 1.5 * 0.044715 * 0.79788456080286535588, 0.5 * 0.79788456080286535588);
    Value rest = k.mulf(k.mulf(x, k.subf(1, k.mulf(t, t))), slope);
    return k.mulf(dy, k.addf(k.fma(t, 0.5, 0.5), rest));
  }
  case ActivationKind::squared_relu: {
    Value positive = k.maxf(x, k.constant(0, x));
    return k.mulf(dy, k.addf(positive, positive));
  }
  }
  llvm_unreachable("every activation is listed");
}

//===--------------------------------------------------------------------------------------------------------===//
// Attaching
//===--------------------------------------------------------------------------------------------------------===//

namespace {

template <typename Op> struct Scalar : ScalarOpInterface::ExternalModel<Scalar<Op>, Op> {
  Value emitScalar(Operation *op, CodeBuilder &k, ArrayRef<Value> operands) const {
    return emitScalarOf(cast<Op>(op), k, operands);
  }
};

template <typename... Ops> void attach(MLIRContext &context) {
  (Ops::template attachInterface<Scalar<Ops>>(context), ...);
}

} // namespace

void registerScalars(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, XFCDialect *) {
    attach<AddOp, MultiplyOp, ScaleOp, ActivationOp, ActivationGradOp>(*context);
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// Epilogues
//===--------------------------------------------------------------------------------------------------------===//

SmallVector<Value> evaluateEpilogue(CodeBuilder &k, Region &region, ArrayRef<Value> arguments, Value dropoutFactor) {
  llvm::DenseMap<Value, Value> values;
  for (auto [argument, value] : llvm::zip_equal(region.front().getArguments(), arguments))
    values[argument] = value;
  SmallVector<Value> operands;
  for (Operation &op : region.front()) {
    operands.clear();
    for (Value operand : op.getOperands())
      operands.push_back(values.lookup(operand));
    if (op.hasTrait<OpTrait::IsTerminator>())
      break;
    // Dropout is the only op that is not a function of its operands: random numbers are drawn for many elements at
    // once, so its factor is passed in.
    auto scalar = dyn_cast<ScalarOpInterface>(op);
    values[op.getResult(0)] = scalar ? scalar.emitScalar(k, operands) : k.mulf(operands[0], dropoutFactor);
  }
  return operands;
}

DropoutOp dropoutOf(Region &epilogue) {
  if (!epilogue.empty())
    for (auto dropout : epilogue.getOps<DropoutOp>())
      return dropout;
  return {};
}

} // namespace xfc
