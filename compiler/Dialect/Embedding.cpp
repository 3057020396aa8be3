// Embeddings and positions: verification and gradients.
#include "Support.h"

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

LogicalResult EmbeddingOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (dy && gradients.wanted(getTable()))
    gradients.add(getTable(),
                  EmbeddingGradOp::create(builder, getLoc(), getTable().getType(), dy, getIds(), getScale()));
  return success();
}

// Checks that the gradient of a table has rows with the features of dy.
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

// Checks that the first position has an entry in the table.
static LogicalResult verifyOffset(Operation *op, int64_t offset, RankedTensorType table) {
  if (offset < 0 || offset >= table.getDimSize(0))
    return op->emitOpError("offset must be from 0 to ") << table.getDimSize(0) - 1 << ", found " << offset;
  return verifyOneElementType(op);
}

LogicalResult AddPositionsOp::verify() {
  RankedTensorType table = getTable().getType();
  if (table.getRank() != 2 || table.getDimSize(1) != getX().getType().getFeatures())
    return emitOpError("table must be [positions, ") << getX().getType().getFeatures() << "], found " << table;
  if (getX().getType().computed() != getResult().getType().computed())
    return emitOpError("x and result must have the same type");
  return verifyOffset(*this, getOffset(), table);
}

LogicalResult AddPositionsOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (!dy)
    return success();
  if (gradients.wanted(getX()))
    gradients.add(getX(), dy);
  if (gradients.wanted(getTable()))
    gradients.add(getTable(), PositionsGradOp::create(builder, getLoc(), getTable().getType(), dy, getOffset()));
  return success();
}

LogicalResult PositionsGradOp::verify() {
  if (failed(verifyTableGrad(*this, getType(), getDy().getType())))
    return failure();
  return verifyOffset(*this, getOffset(), getType());
}

//===--------------------------------------------------------------------------------------------------------===//
// rotate
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult RotateOp::verify() {
  const int64_t features = getX().getType().getFeatures(), heads = static_cast<int64_t>(getHeads());
  if (heads <= 0 || features % heads)
    return emitOpError() << heads << " heads do not divide " << features << " features";
  RankedTensorType table = getTable().getType();
  if (table.getRank() != 2 || table.getDimSize(1) % 2 || table.getDimSize(1) > features / heads)
    return emitOpError("table must be [positions, an even number up to ") << features / heads << "], found " << table;
  if (getX().getType().computed() != getType().computed())
    return emitOpError("x and result must have the same type");
  return verifyOneElementType(*this);
}

// The transpose of a rotation is its inverse.
LogicalResult RotateOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (dy && gradients.wanted(getX()))
    gradients.add(getX(), RotateOp::create(builder, getLoc(), dy.getType(), dy, getTable(), getHeads(), getHalves(),
                                           !getInverse()));
  return success();
}
