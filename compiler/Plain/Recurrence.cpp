// The plain kernels of recurrence.
#include "Lowerings.h"

using namespace mlir;

namespace xfc {

static Number sigmoid(const Number &x) { return 1 / (1 + exp(0 - x)); }

static void lowerPlainOp(RecurrenceOp op, PlainBuilder &b) {
  Value gate = b.operand(0), x = b.operand(1), c = b.result(0);
  const int64_t width = op.getType().getFeatures();
  // The state after row i, given `before`, where the state before it lies if the row is not the first of its sequence.
  auto step = [&](const Number &i, const Number &isFirst, Value before, const Number &row) {
    b.forEach(width, [&](const Number &j) {
      const Number f = sigmoid(b.load(gate, {i, j})), state = select(isFirst, 0, b.load(before, {row, j}));
      const Number input = b.load(x, {i, j}), added = (1 - f) * input;
      b.store(f * state + added, c, {i, j});
    });
  };
  if (!op.getStates()) {
    Value positions = b.positions();
    b.forEach(b.rowCount(), [&](const Number &i) {
      const Number previous = max(i, 1) - 1;
      step(i, b.load(positions, {i}) == 0, c, previous);
    });
    return;
  }
  Value states = b.operand(2, PlainBuilder::Of::Cache), slots = b.previousSlots();
  b.forEach(b.rowCount(), [&](const Number &h) {
    const Number slot = b.load(slots, {h});
    const Number row = max(slot, 0);
    step(h, slot < 0, states, row);
  });
}

static void lowerPlainOp(RecurrenceGradOp op, PlainBuilder &b) {
  Value dy = b.operand(0), gate = b.operand(1), x = b.operand(2), c = b.operand(3), dgate = b.result(0),
        dx = b.result(1);
  Value positions = b.positions(), dc = dx ? dx : dgate; // dc is kept where a result will be
  const Number rows = b.rowCount();
  const int64_t width = op.getDy().getType().getFeatures();
  b.forEach(rows, [&](const Number &fromEnd) {
    const Number last = rows - 1, i = last - fromEnd, next = min(i + 1, last);
    const Number follows = b.load(positions, {next}) > 0, hasNext = (fromEnd > 0) & follows;
    b.forEach(width, [&](const Number &j) {
      const Number dcNext = b.load(dc, {next, j}), later = sigmoid(b.load(gate, {next, j})) * dcNext;
      const Number carried = select(hasNext, later, 0);
      b.store(b.load(dy, {i, j}) + carried, dc, {i, j});
    });
  });
  b.forEach(rows, [&](const Number &i) {
    const Number isFirst = b.load(positions, {i}) == 0;
    b.forEach(width, [&](const Number &j) {
      const Number d = b.load(dc, {i, j}), f = sigmoid(b.load(gate, {i, j}));
      const Number before = select(isFirst, 0, b.load(c, {max(i, 1) - 1, j}));
      const Number change = before - b.load(x, {i, j});
      b.store(f * (1 - f) * change * d, dgate, {i, j});
      b.store((1 - f) * d, dx, {i, j});
    });
  });
}

void attachRecurrenceLowerings(MLIRContext &context) { attachLowerings<RecurrenceOp, RecurrenceGradOp>(context); }

} // namespace xfc
