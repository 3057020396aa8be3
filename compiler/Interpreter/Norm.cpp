// Defines what norms and their gradients compute.
#include "Dialect/Norm.h"
#include "Evaluators.h"
#include "Support.h"
#include <cmath>

using namespace mlir;

namespace xfc {

static void evaluateNorm(const NormSpec &spec, const Tensor &x, const Tensor &weight, const Tensor *bias, Tensor &y,
                         Tensor &stats) {
  const int64_t n = x.features();
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    double mean = 0, squares = 0;
    if (!spec.rms)
      for (int64_t f = 0; f < n; ++f)
        mean += x.row(i)[f] / n;
    for (int64_t f = 0; f < n; ++f)
      squares += (x.row(i)[f] - mean) * (x.row(i)[f] - mean);
    double divisor = spec.divisor(n), variance = divisor > 0 ? squares / divisor : 0;
    double r = spec.epsInStd ? 1 / (std::sqrt(variance) + spec.eps) : 1 / std::sqrt(variance + spec.eps);
    for (int64_t f = 0; f < n; ++f)
      y.row(i)[f] = weight.data[f] * (x.row(i)[f] - mean) * r + (bias ? bias->data[f] : 0);
    stats.row(i)[0] = mean;
    stats.row(i)[1] = r;
  }
}

// Computes dx. The operands are dy, x, weight, stats and, if `hasAddend`, the addend.
static void evaluateNormGrad(const NormSpec &spec, ArrayRef<Tensor> operands, bool hasAddend, Tensor &dx) {
  const Tensor &dy = operands[0], &x = operands[1], &weight = operands[2], &stats = operands[3];
  const int64_t n = x.features();
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    double mean = stats.row(i)[0], r = stats.row(i)[1], sumG = 0, sumGC = 0;
    for (int64_t f = 0; f < n; ++f) {
      double g = dy.row(i)[f] * weight.data[f];
      sumG += g;
      sumGC += g * (x.row(i)[f] - mean);
    }
    double k = spec.divisor(n) > 0 ? r * r * r / spec.divisor(n) : 0;
    if (spec.epsInStd) {
      double std = 1 / r - spec.eps;
      k = std > 0 && spec.divisor(n) > 0 ? r * r / (std * spec.divisor(n)) : 0;
    }
    for (int64_t f = 0; f < n; ++f)
      dx.row(i)[f] = r * (dy.row(i)[f] * weight.data[f] - (spec.rms ? 0 : sumG / n)) -
                     k * (x.row(i)[f] - mean) * sumGC + (hasAddend ? operands[4].row(i)[f] : 0);
  }
}

// Adds the terms of rows begin .. end - 1 to the sums `dweight` and `dbias`.
static void evaluateNormWeightGrad(const Tensor &dy, const Tensor &x, const Tensor &stats, int64_t begin, int64_t end,
                                   double *dweight, double *dbias) {
  for (int64_t i = begin; i < end; ++i)
    for (int64_t f = 0; f < x.features(); ++f) {
      dweight[f] += dy.row(i)[f] * (x.row(i)[f] - stats.row(i)[0]) * stats.row(i)[1];
      dbias[f] += dy.row(i)[f];
    }
}

//===--------------------------------------------------------------------------------------------------------===//
// norm, add_norm
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(NormOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor y = zeros(shape, op.getResult().getType()), stats = zeros(shape, op.getStats().getType());
  evaluateNorm(NormSpec::of(op), operands[0], operands[1], op.getBias() ? &operands[2] : nullptr, y, stats);
  results.append({std::move(y), std::move(stats)});
  return success();
}

static LogicalResult evaluateOp(AddNormOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor sum = operands[0], y = zeros(shape, op.getResult().getType()), stats = zeros(shape, op.getStats().getType());
  for (size_t i = 0; i < sum.data.size(); ++i)
    sum.data[i] += operands[1].data[i];
  evaluateNorm(NormSpec::of(op), sum, operands[2], op.getBias() ? &operands[3] : nullptr, y, stats);
  results.append({std::move(y), std::move(sum), std::move(stats)});
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// Gradients
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(NormGradOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor dx = zeros(shape, op.getType());
  evaluateNormGrad(NormSpec::of(op), operands, static_cast<bool>(op.getAddend()), dx);
  results.push_back(std::move(dx));
  return success();
}

static LogicalResult evaluateOp(NormWeightGradOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor dweight = zeros(shape, op.getDweight().getType()), dbias = dweight;
  evaluateNormWeightGrad(operands[0], operands[1], operands[2], 0, operands[1].shape[0], dweight.data.data(),
                         dbias.data.data());
  results.push_back(std::move(dweight));
  if (op.getDbias())
    results.push_back(std::move(dbias));
  return success();
}

static LogicalResult evaluateOp(NormGradWithPartsOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor dx = zeros(shape, op.getResult().getType()), dweights = zeros(shape, op.getDweights().getType()),
         dbiases = dweights;
  evaluateNormGrad(NormSpec::of(op), operands, static_cast<bool>(op.getAddend()), dx);
  const int64_t parts = dweights.shape[0], rows = operands[1].shape[0];
  for (int64_t p = 0; p < parts; ++p)
    evaluateNormWeightGrad(operands[0], operands[1], operands[3], p * rows / parts, (p + 1) * rows / parts,
                           dweights.row(p), dbiases.row(p));
  results.append({std::move(dx), std::move(dweights)});
  if (op.getDbiases())
    results.push_back(std::move(dbiases));
  return success();
}

static LogicalResult evaluateOp(SumPartsOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  for (auto [parts, result] : llvm::zip_equal(operands, op.getSums())) {
    Tensor sum = zeros(shape, result.getType());
    for (int64_t p = 0; p < parts.shape[0]; ++p)
      for (int64_t f = 0; f < parts.shape[1]; ++f)
        sum.data[f] += parts.data[p * parts.shape[1] + f];
    results.push_back(std::move(sum));
  }
  return success();
}

void attachNormEvaluators(MLIRContext &context) {
  attachEvaluators<NormOp, AddNormOp, NormGradOp, NormWeightGradOp, NormGradWithPartsOp, SumPartsOp>(context);
}

} // namespace xfc
