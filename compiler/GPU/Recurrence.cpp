// xfc.recurrence and its gradient: scans along the rows of a sequence, and the steps of decoding.
#include "Codegen/Recurrence.h"
#include "Emitters.h"
#include "Rows.h"

using namespace mlir;

namespace xfc::gpu {

// A row of the sequence that is scanned, in this thread's column.
struct ScannedRow {
  Value row, isThere; // whether there is such a row
  Value hasPrevious;  // whether there is a row before it in the sequence
  Value column;
};

// Scans the rows of each sequence in ascending order, or `backwards`. A thread has one column, whose state stays in a
// register. `step` returns the state after a row, given what `load` has read of it and the state before it, which is 0
// at the beginning. Several rows are read before the first of them is computed, because a row's state waits for that of
// the row before it, but its operands need not.
static KernelInfo scan(KernelBuilder &k, int64_t width, bool backwards,
                       const std::function<Values(const ScannedRow &)> &load,
                       const std::function<Value(const ScannedRow &, const Values &, Value)> &step) {
  constexpr int64_t ahead = 4;
  k.threads = 128;
  const int64_t parts = (width + k.threads - 1) / k.threads;
  Value sequence = k.div(k.chunk, parts), thread = k.i64Of(k.thread()),
        column = k.add(k.mul(k.rem(k.chunk, parts), k.threads), thread);
  Value sequences = k.field(k.rows(), offsetof(xfc_rows, sequences), k.i64);
  const View offsets = k.numbers(k.rows(), offsetof(xfc_rows, offsets));
  Value isColumn = k.less(column, width);
  k.when(k.both(k.less(sequence, sequences), isColumn), [&] {
    Value first = k.loadIndex(offsets + sequence), end = k.loadIndex(offsets + k.add(sequence, 1));
    k.loop(first, end, ahead, ValueRange{k.scalar(0)}, [&](Value from, Values state) {
      SmallVector<ScannedRow> rows;
      SmallVector<Values> loaded;
      for (int64_t i = 0; i < ahead; ++i) {
        Value at = k.add(from, i), row = backwards ? k.sub(k.add(first, k.sub(end, at)), 1) : at;
        Value isThere = k.less(at, end);
        rows.push_back({row, isThere, k.both(isThere, k.less(first, row)), column});
        loaded.push_back(load(rows.back()));
      }
      for (auto [row, values] : llvm::zip_equal(rows, loaded))
        state[0] = step(row, values, state[0]);
      return state;
    });
  });
  return {{Partition::Unit::Sequences, 1, parts}};
}

// A row is a hypothesis, whose previous state is a row of the cache.
static KernelInfo emitStep(KernelBuilder &k, RecurrenceOp op) {
  const int64_t width = op.getType().getFeatures(), per = rowsPerBlock(width);
  const View gate = k.rowsOf(op.getGateMutable()), x = k.rowsOf(op.getXMutable()),
             states = k.rowsOf(op.getStatesMutable()), result = k.rowsOf(op.getResult());
  const View before = k.numbers(k.shape(), offsetof(xfc_shape, before));
  k.vectorized(buffersOf(op), width, [&](int64_t n) {
    eachGroup(k, per, width / n, [&](Value row, Value group) {
      Value slot = k.loadIndex(before + row), f = k.mul(group, n);
      const View previous = states.row(slot) + f;
      Values state = k.loadIf(k.less(-1, slot), previous, n), gates = k.load(gate.row(row) + f, n),
             xs = k.load(x.row(row) + f, n), cs;
      for (int64_t i = 0; i < n; ++i)
        cs.push_back(recurrence(k, gates[i], xs[i], state[i]));
      k.store(cs, result.row(row) + f);
    });
  });
  return {{Partition::Unit::Rows, per, 1}};
}

static KernelInfo emitRecurrence(KernelBuilder &k, RecurrenceOp op) {
  if (op.getStates())
    return emitStep(k, op);
  const View gate = k.rowsOf(op.getGateMutable()), x = k.rowsOf(op.getXMutable()), result = k.rowsOf(op.getResult());
  auto place = [&](const View &rows, const ScannedRow &at) { return rows.row(at.row) + at.column; };
  return scan(
      k, op.getType().getFeatures(), /*backwards=*/false,
      [&](const ScannedRow &at) -> Values {
        return {k.loadIf(at.isThere, place(gate, at), 1)[0], k.loadIf(at.isThere, place(x, at), 1)[0]};
      },
      [&](const ScannedRow &at, const Values &values, Value state) {
        Value c = recurrence(k, values[0], values[1], state);
        k.storeIf(at.isThere, {c}, place(result, at));
        return c;
      });
}

static KernelInfo emitRecurrenceGrad(KernelBuilder &k, RecurrenceGradOp op) {
  const View dy = k.rowsOf(op.getDyMutable()), gate = k.rowsOf(op.getGateMutable()), x = k.rowsOf(op.getXMutable()),
             c = k.rowsOf(op.getCMutable()), dgate = k.rowsOf(op.getDgate()), dx = k.rowsOf(op.getDx());
  auto place = [&](const View &rows, const ScannedRow &at) { return rows.row(at.row) + at.column; };
  return scan(
      k, op.getDy().getType().getFeatures(), /*backwards=*/true,
      [&](const ScannedRow &at) -> Values {
        View previous = c.row(k.sub(at.row, 1)) + at.column;
        return {k.loadIf(at.isThere, place(dy, at), 1)[0], k.loadIf(at.isThere, place(gate, at), 1)[0],
                k.loadIf(at.isThere, place(x, at), 1)[0], k.loadIf(at.hasPrevious, previous, 1)[0]};
      },
      [&](const ScannedRow &at, const Values &values, Value state) {
        RecurrenceGrad grad = recurrenceGrad(k, k.addf(values[0], state), values[1], values[2], values[3]);
        if (!op.getDgate().use_empty())
          k.storeIf(at.isThere, {grad.dgate}, place(dgate, at));
        if (!op.getDx().use_empty())
          k.storeIf(at.isThere, {grad.dx}, place(dx, at));
        return grad.dbefore;
      });
}

void attachRecurrenceKernels(MLIRContext &context) { attachKernels<emitRecurrence, emitRecurrenceGrad>(context); }

} // namespace xfc::gpu
