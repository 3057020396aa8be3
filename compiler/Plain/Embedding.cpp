// The plain kernels of embeddings and positions.
#include "Lowerings.h"
#include <cmath>

using namespace mlir;

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// embedding
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(EmbeddingOp op, PlainBuilder &b) {
  Value table = b.operand(1), y = b.result(0);
  b.generic("i->ij", b.operand(0), y,
            [&](auto v) { return op.getScale().convertToDouble() * b.load(table, {v[0], b.loop('j')}); });
}

// Adds the rows of dy, in order and times `scale`, to a table: row i to entry entries[i] + offset.
static void lowerTableGrad(PlainBuilder &b, Value dy, Value entries, int64_t offset, Value dtable, double scale) {
  b.fill(dtable, 0);
  b.forEach(b.rowCount(), [&](const Number &i) {
    Value entry = b.slice(dtable, {b.load(entries, {i}) + offset});
    b.elementwise(b.slice(dy, {i}), entry, [&](auto v) { return v[1] + scale * v[0]; });
  });
}

static void lowerPlainOp(EmbeddingGradOp op, PlainBuilder &b) {
  Value dtable = b.result(0), ids = b.operand(1);
  lowerTableGrad(b, b.operand(0), ids, 0, dtable, op.getScale().convertToDouble());
}

//===--------------------------------------------------------------------------------------------------------===//
// positions
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(AddPositionsOp op, PlainBuilder &b) {
  Value table = b.operand(1), y = b.result(0);
  b.generic("ij,i->ij", {b.operand(0), b.positions()}, y,
            [&](auto v) { return v[0] + b.load(table, {v[1] + op.getOffset(), b.loop('j')}); });
}

static void lowerPlainOp(PositionsGradOp op, PlainBuilder &b) {
  Value dtable = b.result(0), positions = b.positions();
  lowerTableGrad(b, b.operand(0), positions, op.getOffset(), dtable, 1);
}

//===--------------------------------------------------------------------------------------------------------===//
// rotate
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(RotateOp op, PlainBuilder &b) {
  const int64_t heads = static_cast<int64_t>(op.getHeads()), width = op.getType().getFeatures() / heads;
  const int64_t rotated = op.getTable().getType().getDimSize(1), half = rotated / 2;
  const bool halves = op.getHalves();
  Value x = b.operand(0), table = b.operand(1), y = b.result(0), positions = b.positions();
  b.forEach(b.rowCount(), [&](const Number &i) {
    Number position = b.load(positions, {i});
    b.forEach(heads, [&](const Number &h) {
      b.forEach(half, [&](const Number &pair) {
        const Number first = halves ? pair : pair * 2, second = halves ? pair + half : first + 1;
        const Number head = h * width, sine = b.load(table, {position, first}),
                     cosine = b.load(table, {position, second});
        const Number u = b.load(x, {i, head + first}), v = b.load(x, {i, head + second});
        const Number turned = op.getInverse() ? 0 - sine : sine;
        const Number firstFeature = head + first, vTurned = v * turned;
        b.store(u * cosine - vTurned, y, {i, firstFeature});
        const Number secondFeature = head + second, uTurned = u * turned;
        b.store(v * cosine + uTurned, y, {i, secondFeature});
      });
      b.forEach(width - rotated, [&](const Number &f) {
        const Number at = h * width + f + rotated;
        b.store(b.load(x, {i, at}), y, {i, at});
      });
    });
  });
}

void attachEmbeddingLowerings(MLIRContext &context) {
  attachLowerings<EmbeddingOp, EmbeddingGradOp, AddPositionsOp, PositionsGradOp, RotateOp>(context);
}

} // namespace xfc
