// Defines what embeddings and positions compute.
#include "Evaluators.h"
#include "Support.h"
#include <cmath>

using namespace mlir;

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// embedding
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(EmbeddingOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor y = zeros(shape, op.getType());
  double scale = op.getScale().convertToDouble();
  for (int64_t i = 0; i < y.shape[0]; ++i)
    for (int64_t f = 0; f < y.features(); ++f)
      y.row(i)[f] = scale * operands[1].row(static_cast<int64_t>(operands[0].data[i]))[f];
  results.push_back(std::move(y));
  return success();
}

static LogicalResult evaluateOp(EmbeddingGradOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor dtable = zeros(shape, op.getType());
  double scale = op.getScale().convertToDouble();
  for (int64_t i = 0; i < operands[0].shape[0]; ++i)
    for (int64_t f = 0; f < dtable.features(); ++f)
      dtable.row(static_cast<int64_t>(operands[1].data[i]))[f] += scale * operands[0].row(i)[f];
  results.push_back(std::move(dtable));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// positions
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(SinusoidOp op, const xfc_shape &shape, ArrayRef<Tensor>,
                                SmallVectorImpl<Tensor> &results) {
  Tensor table = zeros(shape, op.getType());
  const int64_t d = table.features();
  double base = op.getBase().convertToDouble(), m = op.getExponentMultiplier().convertToDouble(),
         c = op.getCosineOffset().convertToDouble();
  for (int64_t p = 0; p < table.shape[0]; ++p)
    for (int64_t i = 0; i < d; i += 2) {
      int64_t sine = op.getHalves() ? i / 2 : i, cosine = op.getHalves() ? (d + 1) / 2 + i / 2 : i + 1;
      table.row(p)[sine] = std::sin(p / std::pow(base, m * i / d));
      if (i + 1 < d)
        table.row(p)[cosine] = std::cos(p / std::pow(base, m * (i + c) / d));
    }
  results.push_back(std::move(table));
  return success();
}

static LogicalResult evaluateOp(AddPositionsOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor y = operands[0];
  const xfc_rows &rows = rowsOf(shape, op.getX().getType());
  for (int64_t i = 0; i < rows.rows; ++i)
    for (int64_t f = 0; f < y.features(); ++f)
      y.row(i)[f] += operands[1].row(rows.positions[i] + op.getOffset())[f];
  results.push_back(std::move(y));
  return success();
}

static LogicalResult evaluateOp(PositionsGradOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor dtable = zeros(shape, op.getType());
  const xfc_rows &rows = rowsOf(shape, op.getDy().getType());
  for (int64_t i = 0; i < rows.rows; ++i)
    for (int64_t f = 0; f < dtable.features(); ++f)
      dtable.row(rows.positions[i] + op.getOffset())[f] += operands[0].row(i)[f];
  results.push_back(std::move(dtable));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// rotate
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(RotateOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor y = operands[0];
  const xfc_rows &rows = rowsOf(shape, op.getX().getType());
  const int64_t heads = static_cast<int64_t>(op.getHeads()), width = y.features() / heads,
                half = operands[1].features() / 2;
  const bool halves = op.getHalves();
  for (int64_t i = 0; i < rows.rows; ++i)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t pair = 0; pair < half; ++pair) {
        const int64_t first = halves ? pair : 2 * pair, second = halves ? pair + half : first + 1;
        const double *angles = operands[1].row(rows.positions[i]), *x = operands[0].row(i) + h * width;
        const double sine = op.getInverse() ? -angles[first] : angles[first], cosine = angles[second];
        y.row(i)[h * width + first] = x[first] * cosine - x[second] * sine;
        y.row(i)[h * width + second] = x[second] * cosine + x[first] * sine;
      }
  results.push_back(std::move(y));
  return success();
}

void attachEmbeddingEvaluators(MLIRContext &context) {
  attachEvaluators<EmbeddingOp, EmbeddingGradOp, SinusoidOp, AddPositionsOp, PositionsGradOp, RotateOp>(context);
}

} // namespace xfc
