// One head of a sequence of queries and of their keys, and which of the keys a query sees.
#include "Codegen/AttentionHead.h"

using namespace mlir;

namespace xfc {

AttentionHead::AttentionHead(CodeBuilder &k, Type small, Value sequence, Value head)
    : sequence(sequence), head(head), keyHead(head), small(small) {
  const View offsets = k.numbers(k.rows(), offsetof(xfc_rows, offsets));
  firstQuery = k.loadIndex(offsets + sequence);
  queries = k.sub(k.loadIndex(offsets + k.add(sequence, 1)), firstQuery);
  if (small != k.i64)
    queries = k.truncated(queries);
  Value structure = k.keys();
  listStart = k.loadIndex(k.numbers(structure, offsetof(xfc_keys, begin)) + sequence);
  keyList = k.numbers(structure, offsetof(xfc_keys, keys)) + listStart;
  keys = numberIn(k, k.numbers(structure, offsetof(xfc_keys, count)), sequence);
  limits = k.numbers(structure, offsetof(xfc_keys, limit)) + firstQuery;
}

Value AttentionHead::numberIn(CodeBuilder &k, const View &list, Value i) const {
  Value number = k.loadIndex(list + i);
  return small == k.i64 ? number : k.truncated(number);
}

void AttentionHead::shareKeys(CodeBuilder &k, int64_t sharing) {
  if (sharing > 1)
    keyHead = k.div(head, sharing);
}

Values AttentionHead::eachSharing(CodeBuilder &k, int64_t sharing, const Values &state,
                                  const std::function<Values(Values)> &body) {
  if (sharing == 1)
    return body(state);
  Values results = k.loop(0, sharing, 1, state, [&](Value i, Values s) {
    head = k.add(k.mul(keyHead, sharing), i);
    return body(std::move(s));
  });
  head = keyHead;
  return results;
}

void AttentionHead::setReach(CodeBuilder &k, std::optional<uint64_t> distance, bool ofCache) {
  cached = ofCache;
  if (!distance)
    return;
  reach = static_cast<int64_t>(*distance);
  locateKeys(k);
}

void AttentionHead::locateKeys(CodeBuilder &k) {
  if (cached)
    return;
  Value zero = k.integer(0, small), last = k.sub(keys, 1);
  Values found = k.choose(
      k.less(zero, keys),
      [&]() -> Values {
        Value position = keyPosition(k, zero);
        return {position, k.equal(k.sub(keyPosition(k, last), position), last)};
      },
      [&]() -> Values { return {zero, k.boolean(true)}; });
  firstPosition = found[0];
  consecutive = found[1];
}

// If the keys are consecutive, as they usually are (no pad tokens among them), no search is needed.
Value AttentionHead::keysBefore(CodeBuilder &k, Value position) {
  Value zero = k.integer(0, small), one = k.integer(1, small);
  auto among = [&](Value count) { return k.max(k.min(count, keys), zero); };
  if (cached)
    return among(position);
  return k.choose(
      consecutive, [&]() -> Values { return {among(k.sub(position, firstPosition))}; },
      [&] {
        return k.loop(zero, keys, 1, ValueRange{zero}, [&](Value key, Values count) -> Values {
          return {k.add(count[0], k.select(k.less(keyPosition(k, key), position), one, zero))};
        });
      })[0];
}

Value AttentionHead::queryPosition(CodeBuilder &k, Value query) const {
  Value row = k.add(firstQuery, k.i64Of(query));
  return numberIn(k, k.numbers(k.rows(), offsetof(xfc_rows, positions)), row);
}

Value AttentionHead::keyPosition(CodeBuilder &k, Value key) const {
  if (cached)
    return key;
  Value row = k.loadIndex(keyList + key);
  return numberIn(k, k.numbers(k.keyRows(), offsetof(xfc_rows, positions)), row);
}

std::pair<Value, Value> AttentionHead::distanceOf(CodeBuilder &k, Value query, Value key) const {
  Value ofQuery = queryPosition(k, query), distance = k.sub(keyPosition(k, key), ofQuery);
  return {k.i64Of(k.max(distance, k.sub(0, distance))), k.select(k.less(0, distance), 1, 0)};
}

Value AttentionHead::first(CodeBuilder &k, Value query) {
  return reach ? keysBefore(k, k.sub(queryPosition(k, query), *reach)) : k.integer(0, small);
}

Value AttentionHead::limit(CodeBuilder &k, Value query) {
  Value limit = k.min(numberIn(k, limits, query), keys);
  return reach ? k.min(limit, keysBefore(k, k.add(queryPosition(k, query), *reach + 1))) : limit;
}

View AttentionHead::pairs(CodeBuilder &k, BufferIndex buffer, int64_t heads) const {
  Value before = k.loadIndex(k.at(k.field(k.keys(), offsetof(xfc_keys, pair_offsets), k.ptr), k.i64) + sequence);
  Value keyCount = k.i64Of(keys), inHeads = k.mul(head, k.mul(k.i64Of(queries), keyCount));
  Value first = k.add(k.mul(before, heads), inHeads);
  return (k.buffer(buffer) + first).inRows(keyCount);
}

View AttentionHead::pairsRow(CodeBuilder &k, BufferIndex buffer, int64_t heads, Value query) const {
  return pairs(k, buffer, heads).row(k.i64Of(query));
}

} // namespace xfc
