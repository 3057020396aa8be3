// Counts the keys of a sequence before a position.
#include "Codegen/KeyPositions.h"

using namespace mlir;

namespace xfc {

KeyPositions::KeyPositions(CodeBuilder &k, Value keys, const PositionOf &positionOf) : keys(keys) {
  Value zero = k.integer(0, keys.getType()), last = k.sub(keys, 1);
  Values found = k.choose(
      k.less(zero, keys),
      [&]() -> Values {
        Value position = positionOf(zero);
        return {position, k.equal(k.sub(positionOf(last), position), last)};
      },
      [&]() -> Values { return {zero, k.boolean(true)}; });
  first = found[0];
  consecutive = found[1];
}

KeyPositions KeyPositions::numbered(Value keys) {
  KeyPositions positions;
  positions.keys = keys;
  return positions;
}

// If the keys are consecutive, as they usually are (no pad tokens among them), no search is needed.
Value KeyPositions::before(CodeBuilder &k, Value position, const PositionOf &positionOf) const {
  Value zero = k.integer(0, keys.getType()), one = k.integer(1, keys.getType());
  auto among = [&](Value count) { return k.max(k.min(count, keys), zero); };
  if (!first)
    return among(position);
  return k.choose(
      consecutive, [&]() -> Values { return {among(k.sub(position, first))}; },
      [&] {
        return k.loop(zero, keys, 1, ValueRange{zero}, [&](Value key, Values count) -> Values {
          return {k.add(count[0], k.select(k.less(positionOf(key), position), one, zero))};
        });
      })[0];
}

} // namespace xfc
