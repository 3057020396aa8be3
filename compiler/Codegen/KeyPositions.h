// Where the keys of a sequence lie, for attention that sees only keys near a query.
#pragma once

#include "Codegen/CodeBuilder.h"

namespace xfc {

// The keys of a list, at positions that ascend. Numbers of keys and positions have the type of `keys`, how many there
// are.
class KeyPositions {
public:
  using PositionOf = std::function<mlir::Value(mlir::Value key)>;

  KeyPositions() = default;
  KeyPositions(CodeBuilder &k, mlir::Value keys, const PositionOf &positionOf);
  // Of keys that are each at the position of its own number: the tokens of a hypothesis.
  static KeyPositions numbered(mlir::Value keys);

  // How many keys are at positions before this one.
  mlir::Value before(CodeBuilder &k, mlir::Value position, const PositionOf &positionOf) const;

private:
  mlir::Value keys;
  mlir::Value first, consecutive; // the first key's, and whether the others follow without a gap; null where numbered
};

} // namespace xfc
