// One head of a sequence of queries and of their keys, and which of the keys a query sees.
#pragma once

#include "Codegen/CodeBuilder.h"

namespace xfc {

// Sequences, heads and rows are i64. Queries and keys, which are numbered within their sequence, and positions have the
// target's type for small numbers.
class AttentionHead {
public:
  mlir::Value sequence, head;
  mlir::Value keyHead;    // of keys and values; `head` unless several heads of queries share one
  mlir::Value firstQuery; // the first row in the query set
  mlir::Value queries;    // the number of queries
  mlir::Value listStart;  // where the key list begins; several sequences may have the same list
  View keyList;           // row numbers in the key set (i32)
  mlir::Value keys;       // how many
  View limits;            // key limits (i32) of the queries
  // Whether the keys are the tokens of a hypothesis, whose positions are their indices in the list, and how far away a
  // query sees keys, if there is a limit.
  bool cached = false;
  std::optional<int64_t> reach;

  // Sets `keyHead` from `head`: every `sharing` consecutive query heads share a key head.
  void shareKeys(CodeBuilder &k, int64_t sharing);
  // Takes `head` as a key head, and runs `body` for each of the `sharing` query heads that share it, in ascending
  // order.
  Values eachSharing(CodeBuilder &k, int64_t sharing, const Values &state, const std::function<Values(Values)> &body);
  // From here on, queries see only keys at most `distance` positions away, if it is given.
  void setReach(CodeBuilder &k, std::optional<uint64_t> distance, bool cached);
  // Computes what keysBefore() needs. To be called once before it, unless setReach() was called with a distance.
  void locateKeys(CodeBuilder &k);

  // A query sees the keys from first() to limit() - 1 of the list.
  mlir::Value first(CodeBuilder &k, mlir::Value query), limit(CodeBuilder &k, mlir::Value query);
  // The number of keys at positions before this one. Lists are in the order of positions.
  mlir::Value keysBefore(CodeBuilder &k, mlir::Value position);
  // Positions of a query and of a key in their sequence.
  mlir::Value queryPosition(CodeBuilder &k, mlir::Value query) const;
  mlir::Value keyPosition(CodeBuilder &k, mlir::Value key) const;
  // The distance between a key and a query, and 1 if the key is after the query, else 0 (i64).
  std::pair<mlir::Value, mlir::Value> distanceOf(CodeBuilder &k, mlir::Value query, mlir::Value key) const;
  // The head's block of a pairs value, of one row for each query; and one of its rows.
  View pairs(CodeBuilder &k, BufferIndex buffer, int64_t heads) const;
  View pairsRow(CodeBuilder &k, BufferIndex buffer, int64_t heads, mlir::Value query) const;

protected:
  // `small` is the type of small numbers, i32 or i64.
  AttentionHead(CodeBuilder &k, mlir::Type small, mlir::Value sequence, mlir::Value head);

private:
  mlir::Value numberIn(CodeBuilder &k, const View &list, mlir::Value i) const;
  const mlir::Type small;
  mlir::Value firstPosition, consecutive; // of the keys, and whether there are no gaps; null if they are not located
};

} // namespace xfc
