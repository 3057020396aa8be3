// Defines what recurrence computes.
#include "Evaluators.h"
#include "Support.h"
#include <cmath>

using namespace mlir;

namespace xfc {

static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

static LogicalResult evaluateOp(RecurrenceOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor c = zeros(shape, op.getType());
  const xfc_rows &rows = rowsOf(shape, op.getType());
  for (int64_t i = 0; i < rows.rows; ++i) {
    const double *before = nullptr;
    if (op.getStates())
      before = shape.before[i] >= 0 ? operands[2].row(shape.before[i]) : nullptr;
    else if (rows.positions[i] > 0)
      before = c.row(i - 1);
    for (int64_t j = 0; j < c.features(); ++j) {
      const double f = sigmoid(operands[0].row(i)[j]);
      c.row(i)[j] = f * (before ? before[j] : 0) + (1 - f) * operands[1].row(i)[j];
    }
  }
  results.push_back(std::move(c));
  return success();
}

static LogicalResult evaluateOp(RecurrenceGradOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  const Tensor &dy = operands[0], &gate = operands[1], &x = operands[2], &c = operands[3];
  Tensor dgate = zeros(shape, op.getDgate().getType()), dx = dgate, dc = dy;
  const xfc_rows &rows = rowsOf(shape, op.getDy().getType());
  for (int64_t i = rows.rows; i-- > 0;)
    for (int64_t j = 0; j < dc.features(); ++j) {
      const bool first = rows.positions[i] == 0;
      const double f = sigmoid(gate.row(i)[j]), before = first ? 0 : c.row(i - 1)[j], d = dc.row(i)[j];
      dgate.row(i)[j] = f * (1 - f) * (before - x.row(i)[j]) * d;
      dx.row(i)[j] = (1 - f) * d;
      if (!first)
        dc.row(i - 1)[j] += f * d;
    }
  results.push_back(std::move(dgate));
  results.push_back(std::move(dx));
  return success();
}

void attachRecurrenceEvaluators(MLIRContext &context) { attachEvaluators<RecurrenceOp, RecurrenceGradOp>(context); }

} // namespace xfc
