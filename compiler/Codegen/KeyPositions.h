// The positions of a sequence's keys, for attention that sees only keys near a query.
#pragma once

#include "Codegen/CodeBuilder.h"

namespace xfc {

// A list of keys at ascending positions. Key indices and positions have the type of `keys`, the number of keys.
class KeyPositions {
public:
  using PositionOf = std::function<mlir::Value(mlir::Value key)>;

  KeyPositions() = default;
  KeyPositions(CodeBuilder &k, mlir::Value keys, const PositionOf &positionOf);
  // For keys whose position is their index: the tokens of a hypothesis.
  static KeyPositions numbered(mlir::Value keys);

  // The number of keys at positions before `position`.
  mlir::Value before(CodeBuilder &k, mlir::Value position, const PositionOf &positionOf) const;

private:
  mlir::Value keys;
  mlir::Value first, consecutive; // the first key's position, and whether there are no gaps; null if numbered
};

} // namespace xfc
