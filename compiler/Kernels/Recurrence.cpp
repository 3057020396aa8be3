// xfc.recurrence and its gradient: scans along the rows of a sequence, and the steps of decoding.
#include "Codegen/Elementwise.h"
#include "RowKernels.h"

using namespace mlir;

namespace xfc {

// c = f before + (1 - f) x with f = logistic(gate).
static Value recurrence(CodeBuilder &k, Value gate, Value x, Value before) {
  Value change = k.subf(before, x);
  return k.fma(logistic(k, gate), change, x);
}

struct RecurrenceGrad {
  Value dgate, dx, dbefore;
};

// The gradients of its operands, given dc.
static RecurrenceGrad recurrenceGrad(CodeBuilder &k, Value dc, Value gate, Value x, Value before) {
  Value f = logistic(k, gate), dx = k.mulf(k.subf(1, f), dc);
  return {k.mulf(k.mulf(f, k.subf(before, x)), dx), dx, k.mulf(f, dc)};
}

// A row is a hypothesis, whose previous state is a row of the cache, if there is one.
static Partition emitStep(Machine &k, RecurrenceOp op) {
  const View before = k.numbers(k.shape(), offsetof(xfc_shape, before));
  const BufferIndex states = op.getStatesMutable();
  return k.overRows(
      widthOf(op.getResult()), {op.getGateMutable(), op.getXMutable(), states, op.getResult()},
      [&](ArrayRef<Value> xs) { return recurrence(k, xs[0], xs[1], xs[2]); },
      [&](BufferIndex i, const View &rows, Value row) -> Machine::RowStart {
        if (i != states)
          return rows.row(row);
        Value slot = k.loadIndex(before + row), known = k.less(-1, slot);
        return {rows.row(k.max(slot, 0)), known};
      });
}

static Partition emitRecurrence(Machine &k, RecurrenceOp op) {
  if (op.getStates())
    return emitStep(k, op);
  const View gate = k.rowsOf(op.getGateMutable()), x = k.rowsOf(op.getXMutable()), result = k.rowsOf(op.getResult());
  return k.scan(
      widthOf(op.getResult()), /*backwards=*/false,
      [&](ScannedRow &row) -> Values { return {row.load(gate), row.load(x)}; },
      [&](ScannedRow &row, const Values &loaded, Value state) {
        Value c = recurrence(k, loaded[0], loaded[1], state);
        row.store(c, result);
        return c;
      });
}

static Partition emitRecurrenceGrad(Machine &k, RecurrenceGradOp op) {
  const View dy = k.rowsOf(op.getDyMutable()), gate = k.rowsOf(op.getGateMutable()), x = k.rowsOf(op.getXMutable()),
             c = k.rowsOf(op.getCMutable()), dgate = k.rowsOf(op.getDgate()), dx = k.rowsOf(op.getDx());
  return k.scan(
      widthOf(op.getDy()), /*backwards=*/true,
      [&](ScannedRow &row) -> Values { return {row.load(dy), row.load(gate), row.load(x), row.loadPrevious(c)}; },
      [&](ScannedRow &row, const Values &loaded, Value state) {
        RecurrenceGrad grad = recurrenceGrad(k, k.addf(loaded[0], state), loaded[1], loaded[2], loaded[3]);
        if (!op.getDgate().use_empty())
          row.store(grad.dgate, dgate);
        if (!op.getDx().use_empty())
          row.store(grad.dx, dx);
        return grad.dbefore;
      });
}

void attachRecurrenceBodies(MLIRContext &context) { attachRowKernels<emitRecurrence, emitRecurrenceGrad>(context); }

} // namespace xfc
