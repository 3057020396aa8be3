// Embeddings and positions: definitions, f64 semantics and gradients.
#include "PlainBuilder.h"
#include "Support.h"
#include <cmath>

using namespace mlir;
using namespace xfc;

//===--------------------------------------------------------------------------------------------------------===//
// embedding
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult EmbeddingOp::verify() {
  RankedTensorType table = getTable().getType();
  if (table.getRank() != 2)
    return emitOpError("table must have two dimensions, found ") << table;
  RowsType result = getResult().getType();
  if (result.getShape() != table.getShape().drop_front())
    return emitOpError("result has ") << result.getFeatures() << " features, the table " << table.getDimSize(1);
  if (result.getSet() != getIds().getType().getSet())
    return emitOpError("ids and result are rows of different sets");
  return verifyOneElementType(*this);
}

LogicalResult EmbeddingOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                    SmallVectorImpl<Tensor> &results) {
  Tensor y = zeros(shape, getType());
  double scale = getScale().convertToDouble();
  for (int64_t i = 0; i < y.shape[0]; ++i)
    for (int64_t f = 0; f < y.features(); ++f)
      y.row(i)[f] = scale * operands[1].row(static_cast<int64_t>(operands[0].data[i]))[f];
  results.push_back(std::move(y));
  return success();
}

void EmbeddingOp::lowerPlain(PlainBuilder &b) {
  Value table = b.operand(1);
  b.generic("i->ij", b.operand(0), b.result(0),
            [&](auto v) { return getScale().convertToDouble() * b.load(table, {v[0], b.loop('j')}); });
}

LogicalResult EmbeddingOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (dy && gradients.wanted(getTable()))
    gradients.add(getTable(),
                  EmbeddingGradOp::create(builder, getLoc(), getTable().getType(), dy, getIds(), getScale()));
  return success();
}

// The gradient of a table with a row of features for each of something.
static LogicalResult verifyTableGrad(Operation *op, RankedTensorType table, RowsType dy) {
  if (table.getRank() != 2 || table.getDimSize(1) != dy.getFeatures())
    return op->emitOpError("result must be a table with rows of ") << dy.getFeatures() << " features, found " << table;
  return verifyOneElementType(op);
}

LogicalResult EmbeddingGradOp::verify() {
  if (getDy().getType().getSet() != getIds().getType().getSet())
    return emitOpError("dy and ids are rows of different sets");
  return verifyTableGrad(*this, getType(), getDy().getType());
}

LogicalResult EmbeddingGradOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                        SmallVectorImpl<Tensor> &results) {
  Tensor dtable = zeros(shape, getType());
  double scale = getScale().convertToDouble();
  for (int64_t i = 0; i < operands[0].shape[0]; ++i)
    for (int64_t f = 0; f < dtable.features(); ++f)
      dtable.row(static_cast<int64_t>(operands[1].data[i]))[f] += scale * operands[0].row(i)[f];
  results.push_back(std::move(dtable));
  return success();
}

// Adds rows, in order, to the entries of a table that `entries` names.
static void lowerTableGrad(PlainBuilder &b, Value dy, Value entries, Value dtable, double scale) {
  b.fill(dtable, 0);
  b.forEach(b.rowCount(), [&](const Number &i) {
    b.elementwise(b.slice(dy, {i}), b.slice(dtable, {b.load(entries, {i})}),
                  [&](auto v) { return v[1] + scale * v[0]; });
  });
}

void EmbeddingGradOp::lowerPlain(PlainBuilder &b) {
  lowerTableGrad(b, b.operand(0), b.operand(1), b.result(0), getScale().convertToDouble());
}

//===--------------------------------------------------------------------------------------------------------===//
// positions
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult SinusoidOp::verify() {
  if (getType().getRank() != 2)
    return emitOpError("result must be [positions, features], found ") << getType();
  if (!(getBase().convertToDouble() > 0))
    return emitOpError("base must be positive, found ") << getBase().convertToDouble();
  return success();
}

LogicalResult SinusoidOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor>, SmallVectorImpl<Tensor> &results) {
  Tensor table = zeros(shape, getType());
  const int64_t d = table.features();
  double base = getBase().convertToDouble(), m = getExponentMultiplier().convertToDouble(),
         c = getCosineOffset().convertToDouble();
  for (int64_t p = 0; p < table.shape[0]; ++p)
    for (int64_t i = 0; i < d; i += 2) {
      int64_t sine = getHalves() ? i / 2 : i, cosine = getHalves() ? (d + 1) / 2 + i / 2 : i + 1;
      table.row(p)[sine] = std::sin(p / std::pow(base, m * i / d));
      if (i + 1 < d)
        table.row(p)[cosine] = std::cos(p / std::pow(base, m * (i + c) / d));
    }
  results.push_back(std::move(table));
  return success();
}

LogicalResult AddPositionsOp::verify() {
  RankedTensorType table = getTable().getType();
  if (table.getRank() != 2 || table.getDimSize(1) != getX().getType().getFeatures())
    return emitOpError("table must be [positions, ") << getX().getType().getFeatures() << "], found " << table;
  if (getX().getType() != getResult().getType())
    return emitOpError("x and result must have one type");
  return verifyOneElementType(*this);
}

int64_t AddPositionsOp::getInPlaceOperand(unsigned) { return 0; }

LogicalResult AddPositionsOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                       SmallVectorImpl<Tensor> &results) {
  Tensor y = operands[0];
  const xfc_rows &rows = rowsOf(shape, getX().getType());
  for (int64_t i = 0; i < rows.rows; ++i)
    for (int64_t f = 0; f < y.features(); ++f)
      y.row(i)[f] += operands[1].row(rows.positions[i])[f];
  results.push_back(std::move(y));
  return success();
}

void AddPositionsOp::lowerPlain(PlainBuilder &b) {
  Value table = b.operand(1);
  b.generic("ij,i->ij", {b.operand(0), b.positions()}, b.result(0),
            [&](auto v) { return v[0] + b.load(table, {v[1], b.loop('j')}); });
}

LogicalResult AddPositionsOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (!dy)
    return success();
  if (gradients.wanted(getX()))
    gradients.add(getX(), dy);
  if (gradients.wanted(getTable()))
    gradients.add(getTable(), PositionsGradOp::create(builder, getLoc(), getTable().getType(), dy));
  return success();
}

LogicalResult PositionsGradOp::verify() { return verifyTableGrad(*this, getType(), getDy().getType()); }

LogicalResult PositionsGradOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                        SmallVectorImpl<Tensor> &results) {
  Tensor dtable = zeros(shape, getType());
  const xfc_rows &rows = rowsOf(shape, getDy().getType());
  for (int64_t i = 0; i < rows.rows; ++i)
    for (int64_t f = 0; f < dtable.features(); ++f)
      dtable.row(rows.positions[i])[f] += operands[0].row(i)[f];
  results.push_back(std::move(dtable));
  return success();
}

void PositionsGradOp::lowerPlain(PlainBuilder &b) { lowerTableGrad(b, b.operand(0), b.positions(), b.result(0), 1); }
