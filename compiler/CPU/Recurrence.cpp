// xfc.recurrence and its gradient: scans along the rows of a sequence, and the steps of decoding.
#include "Codegen/Recurrence.h"
#include "Emitters.h"

using namespace mlir;

namespace xfc {

// A row of the sequence that is scanned, and some columns of it.
struct ScannedPart {
  Value row, hasPrevious; // whether there is a row before it in the sequence
  Value column;
  int64_t used; // columns, at most a vector
};

// Scans the rows of each sequence in ascending order, or `backwards`. `step` returns the state after a row, given the
// state before it, which is 0 at the beginning. A chunk has some of the columns of one sequence, and keeps their states
// in registers, a few vectors at a time.
static KernelInfo scan(KernelBuilder &k, int64_t width, bool backwards,
                       const std::function<Value(const ScannedPart &, Value)> &step) {
  const int64_t lanes = k.lanes(), together = 4 * lanes, perChunk = 4 * together;
  const int64_t whole = width / together * together, parts = (width + perChunk - 1) / perChunk;
  Value sequence = k.div(k.chunk, parts), part = k.rem(k.chunk, parts);
  Value offsets = k.field(k.rows(), offsetof(xfc_rows, offsets), k.ptr);
  Value first = k.loadI32(offsets, sequence), end = k.loadI32(offsets, k.add(sequence, 1));
  auto columns = [&](Value column, int64_t count) {
    k.loop(first, end, 1, Values((count + lanes - 1) / lanes, k.splat(0)), [&](Value i, Values states) {
      Value row = backwards ? k.sub(k.add(first, k.sub(end, i)), 1) : i, hasPrevious = k.less(first, row);
      for (auto [v, state] : llvm::enumerate(states)) {
        const int64_t offset = static_cast<int64_t>(v) * lanes;
        state = step({row, hasPrevious, k.add(column, offset), std::min(lanes, count - offset)}, state);
      }
      return states;
    });
  };
  Value from = k.mul(part, perChunk);
  k.loop(from, k.min(k.add(from, perChunk), whole), together, [&](Value at) { columns(at, together); });
  if (whole < width)
    k.when(k.equal(part, parts - 1), [&] { columns(k.index(whole), width - whole); });
  return {{Partition::Unit::Sequences, 1, parts}, 0};
}

// A row is a hypothesis, whose previous state is a row of the cache.
static KernelInfo emitStep(KernelBuilder &k, RecurrenceOp op) {
  const int64_t width = op.getType().getFeatures(), per = rowsPerChunk(width);
  const View gate = k.rowsOf(op.getGateMutable()), x = k.rowsOf(op.getXMutable()),
             states = k.rowsOf(op.getStatesMutable()), result = k.rowsOf(op.getResult());
  Value before = k.field(k.shape(), offsetof(xfc_shape, before), k.ptr);
  k.eachRow(per, [&](Value row) {
    // Without a previous row, the first one is read, but not used.
    Value slot = k.loadI32(before, row), hasPrevious = k.less(-1, slot);
    View state = states.row(k.max(slot, 0));
    View gates = gate.row(row), xs = x.row(row), to = result.row(row);
    k.features(width, [&](Value f, int64_t used) {
      auto at = [&](const View &p) { return k.load(p + f, k.lanes()); };
      Value previous = k.select(hasPrevious, at(state), 0), in = at(xs);
      Value c = recurrence(k, at(gates), in, previous);
      k.storePart(c, to + f, used);
    });
  });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

static KernelInfo emitRecurrence(KernelBuilder &k, RecurrenceOp op) {
  if (op.getStates())
    return emitStep(k, op);
  const View gate = k.rowsOf(op.getGateMutable()), x = k.rowsOf(op.getXMutable()), result = k.rowsOf(op.getResult());
  return scan(k, op.getType().getFeatures(), /*backwards=*/false, [&](const ScannedPart &at, Value state) {
    auto place = [&](const View &rows) { return rows.row(at.row) + at.column; };
    Value in = k.load(place(x), k.lanes()), c = recurrence(k, k.load(place(gate), k.lanes()), in, state);
    k.storePart(c, place(result), at.used);
    return c;
  });
}

static KernelInfo emitRecurrenceGrad(KernelBuilder &k, RecurrenceGradOp op) {
  const View dy = k.rowsOf(op.getDyMutable()), gate = k.rowsOf(op.getGateMutable()), x = k.rowsOf(op.getXMutable()),
             c = k.rowsOf(op.getCMutable()), dgate = k.rowsOf(op.getDgate()), dx = k.rowsOf(op.getDx());
  return scan(k, op.getDy().getType().getFeatures(), /*backwards=*/true, [&](const ScannedPart &at, Value state) {
    auto place = [&](const View &rows, Value row) { return rows.row(row) + at.column; };
    auto load = [&](const View &rows, Value row) { return k.load(place(rows, row), k.lanes()); };
    // The sequence's first row is read in place of the one before it, but not used.
    Value previous = load(c, k.select(at.hasPrevious, k.sub(at.row, 1), at.row));
    Value before = k.select(at.hasPrevious, previous, 0), in = load(x, at.row), gated = load(gate, at.row);
    RecurrenceGrad grad = recurrenceGrad(k, k.addf(load(dy, at.row), state), gated, in, before);
    if (!op.getDgate().use_empty())
      k.storePart(grad.dgate, place(dgate, at.row), at.used);
    if (!op.getDx().use_empty())
      k.storePart(grad.dx, place(dx, at.row), at.used);
    return grad.dbefore;
  });
}

void attachRecurrenceKernels(MLIRContext &context) { attachKernels<emitRecurrence, emitRecurrenceGrad>(context); }

} // namespace xfc
