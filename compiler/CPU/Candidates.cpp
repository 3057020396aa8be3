// Top-k of a row of numbers, with their tokens: over a slab of logits, a whole row, or the lists of slabs.
//
// A list of C numbers and the list of their tokens are two vectors in registers, best first. One pass over the row
// finds a bound that at least C numbers reach and few others do; a second pass visits those.
#include "Codegen/Softmax.h"
#include "Emitters.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <cmath>

using namespace mlir;

namespace xfc {
namespace {

struct List {
  Value tokens, numbers;
};

List emptyList(KernelBuilder &k, int64_t count) {
  Value none = arith::ConstantOp::create(k.b, DenseElementsAttr::get(k.vectorType(count, k.i32), int32_t(-1)));
  return {none, k.constant(-INFINITY, k.vectorType(count))};
}

// The list with a number inserted after those that are equal to it, and without the last one.
List insert(KernelBuilder &k, const List &list, Value token, Value number) {
  auto type = cast<VectorType>(list.numbers.getType());
  SmallVector<int64_t> moved = {0};
  for (int64_t i = 0; i + 1 < type.getDimSize(0); ++i)
    moved.push_back(type.getDimSize(0) + i);
  Value numbers = vector::BroadcastOp::create(k.b, type, number),
        tokens = vector::BroadcastOp::create(k.b, list.tokens.getType(), token);
  Value beaten = k.lessf(list.numbers, numbers);
  Value before = vector::ShuffleOp::create(k.b, numbers, list.numbers, moved),
        tokensBefore = vector::ShuffleOp::create(k.b, tokens, list.tokens, moved);
  Value beatenBefore = k.lessf(before, numbers);
  return {k.select(beaten, k.select(beatenBefore, tokensBefore, tokens), list.tokens),
          k.select(beaten, k.select(beatenBefore, before, numbers), list.numbers)};
}

// The lanes of boolean vectors as bits, the first vector's lowest.
Value bitsOf(KernelBuilder &k, ArrayRef<Value> truths) {
  Value bits;
  int64_t at = 0;
  for (Value truth : truths) {
    const int64_t n = cast<VectorType>(truth.getType()).getDimSize(0);
    Value own = LLVM::BitcastOp::create(k.b, k.b.getIntegerType(n), truth);
    if (n < 64)
      own = arith::ExtUIOp::create(k.b, k.i64, own);
    if (at)
      own = arith::ShLIOp::create(k.b, own, k.index(at));
    bits = bits ? arith::OrIOp::create(k.b, bits, own).getResult() : own;
    at += n;
  }
  return bits;
}

// Calls body(index of the bit, list) for each bit that is set, lowest first.
List forEachBit(KernelBuilder &k, Value bits, const List &list, const std::function<List(Value, const List &)> &body) {
  Values state =
      k.loop(0, math::CtPopOp::create(k.b, bits), 1, {bits, list.tokens, list.numbers}, [&](Value, Values s) -> Values {
        List next = body(math::CountTrailingZerosOp::create(k.b, s[0]), {s[1], s[2]});
        return {arith::AndIOp::create(k.b, s[0], k.sub(s[0], 1)), next.tokens, next.numbers};
      });
  return {state[1], state[2]};
}

// The two largest numbers in each lane of the vectors seen. NaNs are ignored: comparisons with NaN choose the other
// number.
struct Largest {
  Value first, second;
  Largest with(KernelBuilder &k, Value x) const { return {k.maxf(x, first), k.maxf(k.minf(first, x), second)}; }
  Largest with(KernelBuilder &k, const Largest &other) const {
    Value most = k.maxf(other.first, first), seconds = k.maxf(other.second, second);
    return {most, k.maxf(k.minf(first, other.first), seconds)};
  }
  // A bound that at least `count` of the numbers seen reach. Lanes are merged into the fewest groups that have `count`
  // numbers, two per group; the bound is the smallest of the groups' second numbers.
  Value bound(KernelBuilder &k, int64_t count) const {
    int64_t n = k.lanes();
    if (2 * n < count)
      return k.scalar(-INFINITY);
    Largest groups = *this;
    for (; n > 1 && n >= count; n /= 2) {
      auto [low, high] = k.halves(groups.first);
      auto [secondLow, secondHigh] = k.halves(groups.second);
      groups = Largest{low, secondLow}.with(k, Largest{high, secondHigh});
    }
    Value smallest = groups.second;
    for (; n > 1; n /= 2) {
      auto [low, high] = k.halves(smallest);
      smallest = k.minf(low, high);
    }
    return k.lane(smallest, 0);
  }
};

// The two largest per lane of `width` numbers, a multiple of candidateGroup.
Largest largestOf(KernelBuilder &k, const View &row, Value width) {
  constexpr int64_t chains = 2;
  Values state;
  for (int64_t c = 0; c < chains; ++c)
    state.append({k.splat(-INFINITY), k.splat(-INFINITY)});
  state = k.loop(0, width, candidateGroup, state, [&](Value f, Values s) {
    for (int64_t i = 0; i < candidateGroup; i += k.lanes()) {
      const int64_t c = i / k.lanes() % chains * 2;
      Largest next = Largest{s[c], s[c + 1]}.with(k, k.load(row + f + i, k.lanes()));
      s[c] = next.first;
      s[c + 1] = next.second;
    }
    return s;
  });
  return Largest{state[0], state[1]}.with(k, Largest{state[2], state[3]});
}

// The `count` largest numbers of a row, of which at least `count` reach `bound`.
List select(KernelBuilder &k, const View &row, Value width, Value first, Value bound, int64_t count) {
  Value bounds = k.broadcast(bound);
  List none = emptyList(k, count);
  Values state = k.loop(0, width, candidateGroup, {none.tokens, none.numbers}, [&](Value f, Values s) -> Values {
    SmallVector<Value> reached;
    for (int64_t i = 0; i < candidateGroup; i += k.lanes())
      reached.push_back(arith::CmpFOp::create(k.b, arith::CmpFPredicate::OGE, k.load(row + f + i, k.lanes()), bounds));
    List list = forEachBit(k, bitsOf(k, reached), {s[0], s[1]}, [&](Value bit, const List &list) {
      Value column = k.add(f, bit), number = k.load(row + column);
      return insert(k, list, k.truncated(k.add(first, column)), number);
    });
    return {list.tokens, list.numbers};
  });
  return {state[0], state[1]};
}

// The list's logits as log-probabilities. One that is not a number is no candidate.
List normalized(KernelBuilder &k, const List &list, Value lse) {
  List none = emptyList(k, cast<VectorType>(list.numbers.getType()).getDimSize(0));
  Value logProbs = k.subf(list.numbers, vector::BroadcastOp::create(k.b, list.numbers.getType(), lse));
  Value some = k.lessf(none.numbers, logProbs); // false for NaN
  return {k.select(some, list.tokens, none.tokens), k.select(some, logProbs, none.numbers)};
}

template <typename Op> void storeResults(KernelBuilder &k, Op op, Value row, const List &list, Value wanted) {
  k.storeIfRead(list.tokens, op.getTokens(), row);
  k.storeIfRead(list.numbers, op.getBest(), row);
  k.storeIfRead(wanted, op.getWantedLogProb(), row);
}

} // namespace

int64_t excludedRoom(KernelBuilder &k, ArrayRef<int64_t> excluded) {
  KernelBuilder::SumLanes wide(k);
  return (static_cast<int64_t>(excluded.size()) + k.lanes() - 1) / k.lanes() * k.lanes();
}

SlabCandidates emitSlabCandidates(KernelBuilder &k, const View &row, Value width, Value first,
                                  ArrayRef<int64_t> excluded, const View &spare, int64_t count) {
  KernelBuilder::SumLanes wide(k);
  const int64_t lanes = k.lanes(), room = spare ? excludedRoom(k, excluded) : 0;
  for (int64_t i = 0; i < room; i += lanes)
    k.storePart(-INFINITY, spare + i, lanes);
  for (auto [i, token] : llvm::enumerate(excluded)) {
    Value column = k.sub(token, first);
    k.when(k.within(column, width), [&, i = i] {
      View from = row + column;
      if (spare) {
        View place = spare + static_cast<int64_t>(i);
        k.store(k.load(from), place);
      }
      k.store(-INFINITY, from);
    });
  }
  Largest largest = largestOf(k, row, width);

  // As in logSumExp, the maximum is finite even if all logits are minus infinity.
  Value maxima = k.maxf(largest.first, k.splat(lowest));
  for (int64_t i = 0; i < room; i += lanes)
    maxima = k.maxf(k.load(spare + i, lanes), maxima);
  Value maximum = k.largest(maxima), reference = k.broadcast(maximum);
  constexpr int64_t chains = 4;
  auto add = [&](Value sum, const View &p) { return k.addf(sum, k.exp(k.subf(k.load(p, lanes), reference))); };
  Values sums = k.loop(0, width, candidateGroup, Values(chains, k.splat(0)), [&](Value f, Values s) {
    for (int64_t i = 0; i < candidateGroup; i += lanes)
      s[i / lanes % chains] = add(s[i / lanes % chains], row + f + i);
    return s;
  });
  for (int64_t i = 0; i < room; i += lanes)
    sums[i / lanes % chains] = add(sums[i / lanes % chains], spare + i);
  Value second = k.addf(sums[2], sums[3]), sum = k.sum(k.addf(k.addf(sums[0], sums[1]), second));
  Value lse = k.addf(maximum, k.log(sum));

  List list = select(k, row, width, first, largest.bound(k, count), count);
  return {list.tokens, list.numbers, lse};
}

// Works on a copy of the row in scratch, without the excluded tokens.
static KernelInfo emitCandidates(KernelBuilder &k, CandidatesOp op) {
  const int64_t vocabulary = widthOf(op.getLogProbs()),
                width = (vocabulary + candidateGroup - 1) / candidateGroup * candidateGroup;
  const int64_t per = rowsPerChunk(vocabulary), count = widthOf(op.getTokens()), lanes = k.lanes();
  k.eachRow(per, [&](Value row) {
    View from = k.rowOf(op.getLogProbsMutable(), row), copy = k.scratch;
    const Value none = k.splat(-INFINITY);
    k.features(vocabulary, [&](Value f, int64_t used) {
      View place = copy + f;
      k.store(k.upTo(used, k.load(from + f, lanes), -INFINITY), place);
    });
    for (int64_t f = (vocabulary + lanes - 1) / lanes * lanes; f < width; f += lanes)
      k.store(none, copy + f);
    for (int64_t token : op.getExcluded())
      k.store(-INFINITY, copy + token);
    Value end = k.index(width), zero = k.index(0), bound = largestOf(k, copy, end).bound(k, count);
    List list = select(k, copy, end, zero, bound, count);
    Value wanted = k.load(from + k.loadIndex(k.buffer(op.getWantedMutable()) + row));
    if (op.getRenormalize()) {
      Value lse = emitLogSumExp(k, copy, width).first;
      list = normalized(k, list, lse);
      wanted = k.subf(wanted, lse);
    }
    storeResults(k, op, row, list, wanted);
  });
  return {{Partition::Unit::Rows, per, 1}, width * k.bytes()};
}

static KernelInfo emitMergeCandidates(KernelBuilder &k, MergeCandidatesOp op) {
  const int64_t slabs = widthOf(op.getLse()), count = widthOf(op.getTokens()), per = rowsPerChunk(slabs * count);
  k.eachRow(per, [&](Value row) {
    View tokens = k.rowOf(op.getSlabTokensMutable(), row), numbers = k.rowOf(op.getLargestMutable(), row);
    Value lse = emitLogSumExp(k, k.rowOf(op.getLseMutable(), row), slabs).first;
    List none = emptyList(k, count);
    Values state = k.loop(0, slabs * count, count, {none.tokens, none.numbers}, [&](Value from, Values s) -> Values {
      Value last = vector::BroadcastOp::create(k.b, s[1].getType(), k.lane(s[1], count - 1));
      Value better = k.lessf(last, k.load(numbers + from, count));
      List list = forEachBit(k, bitsOf(k, {better}), {s[0], s[1]}, [&](Value bit, const List &list) {
        Value at = k.add(from, bit), number = k.load(numbers + at);
        return insert(k, list, k.truncated(k.loadIndex(tokens + at)), number);
      });
      return {list.tokens, list.numbers};
    });
    Value wanted = k.load(k.rowOf(op.getWantedLogitMutable(), row));
    const List best = normalized(k, {state[0], state[1]}, lse);
    storeResults(k, op, row, best, k.subf(wanted, lse));
  });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

void attachCandidatesKernels(MLIRContext &context) { attachKernels<emitCandidates, emitMergeCandidates>(context); }

} // namespace xfc
