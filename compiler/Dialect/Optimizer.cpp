// The optimizer's ops: definitions and f64 semantics.
#include "PlainBuilder.h"
#include "Support.h"
#include <cmath>

using namespace mlir;
using namespace xfc;

LogicalResult SquareSumOp::verify() {
  if (getTensors().empty())
    return emitOpError("needs a tensor");
  if (getType().getRank() != 1 || getType().getDimSize(0) < 1)
    return emitOpError("result must have one dimension and an element, found ") << getType();
  return success();
}

// Parts are cut by the block the tensors lie in; where the cuts are moves no more than the last bits of the norm.
LogicalResult SquareSumOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                    SmallVectorImpl<Tensor> &results) {
  Tensor sums = zeros(shape, getType());
  for (const Tensor &tensor : operands)
    for (double value : tensor.data)
      sums.data[0] += value * value;
  results.push_back(std::move(sums));
  return success();
}

void SquareSumOp::lowerPlain(PlainBuilder &b) {
  Number elements = b.immediate(0), parts = (elements + (elementsOfPart - 1)) / elementsOfPart;
  Value tensors = b.dense(0, elements), sums = b.dense(getNumOperands(), parts);
  b.forEach(parts, [&](const Number &p) {
    Number begin = p * elementsOfPart;
    Value part = b.slice(tensors, {{begin, min(elementsOfPart, elements - begin)}});
    b.store(b.reduce("i->", part, b.f64(0), [&](auto v) { return v[1] + b.f64(v[0]) * b.f64(v[0]); }), sums, {p});
  });
}

LogicalResult ClipFactorOp::verify() {
  for (Value sums : getSums())
    if (cast<RankedTensorType>(sums.getType()).getRank() != 1)
      return emitOpError("sums must have one dimension, found ") << sums.getType();
  return success();
}

LogicalResult ClipFactorOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                     SmallVectorImpl<Tensor> &results) {
  double limit = operands[0].data[0], squares = 0;
  for (const Tensor &sums : operands.drop_front())
    for (double value : sums.data)
      squares += value;
  double norm = std::sqrt(squares);
  results.append({Tensor{{}, {limit > 0 && norm > limit ? limit / norm : 1}}, Tensor{{}, {norm}}});
  return success();
}

void ClipFactorOp::lowerPlain(PlainBuilder &b) {
  Number limit = b.f64(b.load(b.operand(0))), squares = b.f64(0);
  for (unsigned i = 1; i < getNumOperands(); ++i)
    squares = b.reduce("i->", b.operand(i), squares, [](auto v) { return v[1] + v[0]; });
  Number norm = sqrt(squares);
  b.store(select((limit > 0) & (norm > limit), limit / norm, 1), b.result(0));
  b.store(norm, b.result(1));
}

LogicalResult AdamOp::verify() {
  size_t n = getParameters().size();
  if (getGradients().size() != n || getMoments1().size() != n || getMoments2().size() != n || getNumResults() != 3 * n)
    return emitOpError("needs as many gradients, moments and results as parameters: ") << n;
  for (size_t i = 0; i < n; ++i)
    for (Type type : {getGradients()[i].getType(), getMoments1()[i].getType(), getMoments2()[i].getType(),
                      getNewParameters()[i].getType(), getNewMoments1()[i].getType(), getNewMoments2()[i].getType()})
      if (type != getParameters()[i].getType())
        return emitOpError("everything of parameter ")
               << i << " must be " << getParameters()[i].getType() << ", found " << type;
  if (getHyper().getType().getShape() != ArrayRef<int64_t>{8})
    return emitOpError("hyper must have 8 elements, found ") << getHyper().getType();
  return success();
}

LogicalResult AdamOp::evaluate(const xfc_shape &, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  const std::vector<double> &hyper = operands[0].data;
  double lr = hyper[0], beta1 = hyper[1], beta2 = hyper[2], eps = hyper[3], l2 = hyper[4], decay = hyper[5],
         correction1 = hyper[6], correction2 = hyper[7], factor = operands[1].data[0];
  const size_t n = getParameters().size();
  SmallVector<Tensor> parameters(operands.slice(2, n)), moments1(operands.slice(2 + 2 * n, n)),
      moments2(operands.slice(2 + 3 * n, n));
  for (size_t t = 0; t < n; ++t)
    for (size_t i = 0; i < parameters[t].data.size(); ++i) {
      double &p = parameters[t].data[i], &m = moments1[t].data[i], &v = moments2[t].data[i];
      double g = factor * operands[2 + n + t].data[i] + l2 * p;
      m = beta1 * m + (1 - beta1) * g;
      v = beta2 * v + (1 - beta2) * g * g;
      p -= lr * decay * p + lr * (m / correction1) / (std::sqrt(v / correction2) + eps);
    }
  for (SmallVector<Tensor> *group : {&parameters, &moments1, &moments2})
    results.append(group->begin(), group->end());
  return success();
}

// Tensors of a group lie behind each other, from the first on, and are updated where they are.
void AdamOp::lowerPlain(PlainBuilder &b) {
  const unsigned n = getParameters().size();
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
