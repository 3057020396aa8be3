// Defines what elementwise ops compute.
#include "Evaluators.h"
#include "Support.h"
#include <cmath>

using namespace mlir;

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// add, multiply
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(AddOp, const xfc_shape &, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor sum = operands[0];
  for (size_t i = 0; i < sum.data.size(); ++i)
    sum.data[i] += operands[1].data[i];
  results.push_back(std::move(sum));
  return success();
}

static LogicalResult evaluateOp(MultiplyOp, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor product = operands[0];
  for (size_t i = 0; i < product.data.size(); ++i)
    product.data[i] *= operands[1].data[i];
  results.push_back(std::move(product));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// scale
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(ScaleOp op, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor y = operands[0];
  for (double &value : y.data)
    value *= op.getFactor().convertToDouble();
  results.push_back(std::move(y));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// activation
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(ActivationOp op, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor y = operands[0];
  for (double &x : y.data) {
    switch (op.getKind()) {
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
    case ActivationKind::gelu_tanh:
      x = 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
      break;
    case ActivationKind::squared_relu:
      x = x > 0 ? x * x : 0;
      break;
    }
  }
  results.push_back(std::move(y));
  return success();
}

static LogicalResult evaluateOp(ActivationGradOp op, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor dx = operands[0];
  for (size_t i = 0; i < dx.data.size(); ++i) {
    double x = operands[1].data[i], slope = 0;
    switch (op.getKind()) {
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
    case ActivationKind::gelu_tanh: {
      double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
      slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
      break;
    }
    case ActivationKind::squared_relu:
      slope = x > 0 ? 2 * x : 0;
      break;
    }
    dx.data[i] *= slope;
  }
  results.push_back(std::move(dx));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// dropout, zeros
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(DropoutOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor y = operands[0];
  double rate = op.getRate().convertToDouble();
  if (auto type = dyn_cast<RowsType>(op.getType())) {
    const xfc_rows &rows = rowsOf(shape, type);
    for (int64_t i = 0; i < rows.rows; ++i)
      for (int64_t f = 0; f < type.getFeatures(); ++f)
        y.row(i)[f] *= op.getKept() ? keptFactor(shape, rate)
                                    : dropoutFactor(shape, rate, op.getId(), rows.sentences[rows.sequence_of[i]],
                                                    rows.positions[i], f);
  } else {
    auto pairs = cast<PairsType>(op.getType());
    const xfc_rows &queries = shape.sets[static_cast<int>(pairs.getQueries())];
    const xfc_rows &keys = shape.sets[static_cast<int>(pairs.getKeys())];
    forEachPair(shape, pairs.getQueries(), pairs.getStructure(), [&](const Pair &pair) {
      for (int64_t h = 0; h < pairs.getHeads(); ++h)
        y.data[pair.element(h, pairs.getHeads())] *=
            dropoutFactor(shape, rate, op.getId(), queries.sentences[pair.sequence], queries.positions[pair.query],
                          keys.positions[pair.key], 1 + h);
    });
  }
  results.push_back(std::move(y));
  return success();
}

static LogicalResult evaluateOp(ZerosOp op, const xfc_shape &shape, ArrayRef<Tensor>,
                                SmallVectorImpl<Tensor> &results) {
  results.push_back(zeros(shape, op.getType()));
  return success();
}

void attachElementwiseEvaluators(MLIRContext &context) {
  attachEvaluators<AddOp, MultiplyOp, ScaleOp, ActivationOp, ActivationGradOp, DropoutOp, ZerosOp>(context);
}

} // namespace xfc
