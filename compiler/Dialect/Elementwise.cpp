// Elementwise ops: definitions, f64 semantics and gradients.
#include "PlainBuilder.h"
#include "Support.h"
#include <cmath>

using namespace mlir;
using namespace xfc;

//===--------------------------------------------------------------------------------------------------------===//
// add, multiply
//===--------------------------------------------------------------------------------------------------------===//

int64_t AddOp::getInPlaceOperand(unsigned) { return 0; }

LogicalResult AddOp::evaluate(const xfc_shape &, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor sum = operands[0];
  for (size_t i = 0; i < sum.data.size(); ++i)
    sum.data[i] += operands[1].data[i];
  results.push_back(std::move(sum));
  return success();
}

void AddOp::lowerPlain(PlainBuilder &b) {
  b.elementwise({b.operand(0), b.operand(1)}, b.result(0), [](auto v) { return v[0] + v[1]; });
}

LogicalResult AddOp::differentiate(OpBuilder &, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  for (Value operand : {getA(), getB()})
    if (gradients.wanted(operand))
      gradients.add(operand, dy);
  return success();
}

int64_t MultiplyOp::getInPlaceOperand(unsigned) { return 0; }

LogicalResult MultiplyOp::evaluate(const xfc_shape &, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor product = operands[0];
  for (size_t i = 0; i < product.data.size(); ++i)
    product.data[i] *= operands[1].data[i];
  results.push_back(std::move(product));
  return success();
}

void MultiplyOp::lowerPlain(PlainBuilder &b) {
  b.elementwise({b.operand(0), b.operand(1)}, b.result(0), [](auto v) { return v[0] * v[1]; });
}

LogicalResult MultiplyOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (!dy)
    return success();
  if (gradients.wanted(getA()))
    gradients.add(getA(), MultiplyOp::create(builder, getLoc(), dy.getType(), dy, getB()));
  if (gradients.wanted(getB()))
    gradients.add(getB(), MultiplyOp::create(builder, getLoc(), dy.getType(), dy, getA()));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// activation
//===--------------------------------------------------------------------------------------------------------===//

int64_t ActivationOp::getInPlaceOperand(unsigned) { return 0; }

LogicalResult ActivationOp::evaluate(const xfc_shape &, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor y = operands[0];
  for (double &x : y.data) {
    switch (getKind()) {
    case ActivationKind::relu:
      x = x > 0 ? x : 0;
      break;
    case ActivationKind::gelu:
      x = 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
      break;
    case ActivationKind::silu:
      x = x / (1 + std::exp(-x));
      break;
    case ActivationKind::tanh:
      x = std::tanh(x);
      break;
    }
  }
  results.push_back(std::move(y));
  return success();
}

void ActivationOp::lowerPlain(PlainBuilder &b) {
  b.elementwise(b.operand(0), b.result(0), [&](ArrayRef<Number> v) -> Number {
    const Number &x = v[0];
    switch (getKind()) {
    case ActivationKind::relu:
      return select(x > 0, x, 0);
    case ActivationKind::gelu:
      return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case ActivationKind::silu:
      return x / (1 + exp(0 - x));
    case ActivationKind::tanh:
      return tanh(x);
    }
    llvm_unreachable("every activation is listed");
  });
}

LogicalResult ActivationOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (!dy || !gradients.wanted(getX()))
    return success();
  // relu's result says as much as its operand, and is kept anyway: the next linear needs it.
  Value x = getKind() == ActivationKind::relu ? getResult() : getX();
  gradients.add(getX(), ActivationGradOp::create(builder, getLoc(), dy.getType(), dy, x, getKind()));
  return success();
}

int64_t ActivationGradOp::getInPlaceOperand(unsigned) { return 0; }

LogicalResult ActivationGradOp::evaluate(const xfc_shape &, ArrayRef<Tensor> operands,
                                         SmallVectorImpl<Tensor> &results) {
  Tensor dx = operands[0];
  for (size_t i = 0; i < dx.data.size(); ++i) {
    double x = operands[1].data[i], slope = 0;
    switch (getKind()) {
    case ActivationKind::relu:
      slope = x > 0;
      break;
    case ActivationKind::gelu:
      slope = 0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
      break;
    case ActivationKind::silu: {
      double sigmoid = 1 / (1 + std::exp(-x));
      slope = sigmoid * (1 + x * (1 - sigmoid));
      break;
    }
    case ActivationKind::tanh:
      slope = 1 - std::tanh(x) * std::tanh(x);
      break;
    }
    dx.data[i] *= slope;
  }
  results.push_back(std::move(dx));
  return success();
}

void ActivationGradOp::lowerPlain(PlainBuilder &b) {
  auto gradient = [&](ArrayRef<Number> v) -> Number {
    const Number &dy = v[0], &x = v[1];
    switch (getKind()) {
    case ActivationKind::relu:
      return select(x > 0, dy, 0);
    case ActivationKind::gelu:
      return dy * (0.5 * (1 + erf(x * M_SQRT1_2)) + x * exp(-0.5 * x * x) / std::sqrt(2 * M_PI));
    case ActivationKind::silu: {
      Number sigmoid = 1 / (1 + exp(0 - x));
      return dy * sigmoid * (1 + x * (1 - sigmoid));
    }
    case ActivationKind::tanh: {
      Number t = tanh(x);
      return dy * (1 - t * t);
    }
    }
    llvm_unreachable("every activation is listed");
  };
  b.elementwise({b.operand(0), b.operand(1)}, b.result(0), gradient);
}

//===--------------------------------------------------------------------------------------------------------===//
// dropout, fill
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult DropoutOp::verify() {
  double rate = getRate().convertToDouble();
  if (!(rate >= 0 && rate < 1))
    return emitOpError("rate must be at least 0 and less than 1, found ") << rate;
  if (getKept() && !isa<RowsType>(getType()))
    return emitOpError("kept is for rows");
  return success();
}

int64_t DropoutOp::getInPlaceOperand(unsigned) { return 0; }

LogicalResult DropoutOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor y = operands[0];
  double rate = getRate().convertToDouble();
  if (auto type = dyn_cast<RowsType>(getType())) {
    const xfc_rows &rows = rowsOf(shape, type);
    for (int64_t i = 0; i < rows.rows; ++i)
      for (int64_t f = 0; f < type.getFeatures(); ++f)
        y.row(i)[f] *=
            getKept() ? keptFactor(shape, rate)
                      : dropoutFactor(shape, rate, getId(), rows.sentences[rows.sequence_of[i]], rows.positions[i], f);
  } else {
    auto pairs = cast<PairsType>(getType());
    const xfc_rows &queries = shape.sets[static_cast<int>(pairs.getQueries())];
    const xfc_rows &keys = shape.sets[static_cast<int>(pairs.getKeys())];
    forEachPair(shape, pairs.getQueries(), pairs.getStructure(), [&](const Pair &pair) {
      for (int64_t h = 0; h < pairs.getHeads(); ++h)
        y.data[pair.element(h, pairs.getHeads())] *=
            dropoutFactor(shape, rate, getId(), queries.sentences[pair.sequence], queries.positions[pair.query],
                          keys.positions[pair.key], 1 + h);
    });
  }
  results.push_back(std::move(y));
  return success();
}

void DropoutOp::lowerPlain(PlainBuilder &b) {
  const double rate = getRate().convertToDouble();
  Value x = b.operand(0), y = b.result(0), positions = b.positions(), sentences = b.sentences();
  auto pairs = dyn_cast<PairsType>(getType());
  if (getKept())
    return b.elementwise({x}, y, [&](auto v) { return b.keptByDropout(v[0], rate); });
  if (!pairs)
    return b.generic("ij,i,i->ij", {x, positions, b.sequenceOf()}, y,
                     [&](auto v) { return b.dropout(v[0], rate, b.load(sentences, {v[2]}), v[1], b.loop('j'), 0); });
  Value keyPositions = b.positions(PlainBuilder::Of::Keys);
  b.forEachHead(pairs, [&](const PlainBuilder::Head &head) {
    Number sentence = b.load(sentences, {head.sequence});
    b.generic("ij,i,j->ij", {head.of(x), head.queries(positions), head.keyRows()}, head.of(y), [&](auto v) {
      return b.dropout(v[0], rate, sentence, v[1], b.load(keyPositions, {v[2]}), head.head + 1);
    });
  });
}

LogicalResult DropoutOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (dy && gradients.wanted(getX()))
    gradients.add(getX(), DropoutOp::create(builder, getLoc(), dy.getType(), dy, getRate(), getId(), getKept()));
  return success();
}

OpFoldResult DropoutOp::fold(FoldAdaptor) { return getRate().isZero() ? getX() : OpFoldResult(); }

LogicalResult FillOp::verify() { return verifyOneElementType(*this); }

LogicalResult FillOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor y = zeros(shape, getType());
  y.data.assign(y.data.size(), operands[0].data[0]);
  results.push_back(std::move(y));
  return success();
}

void FillOp::lowerPlain(PlainBuilder &b) { b.fill(b.result(0), b.load(b.operand(0))); }

LogicalResult ZerosOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor>, SmallVectorImpl<Tensor> &results) {
  results.push_back(zeros(shape, getType()));
  return success();
}

void ZerosOp::lowerPlain(PlainBuilder &b) { b.fill(b.result(0), 0); }
