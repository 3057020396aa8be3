// The top few numbers of a row and their tokens, from the whole row or from the lists of its slabs.
//
// A number and its token are packed into one integer key: the number's bits, mapped so that they order as the numbers
// do, above the token's complement. So a larger key is a better candidate, no two keys are equal, and 0 means none.
#include "Codegen/Softmax.h"
#include "Emitters.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>
#include <limits>

using namespace mlir;

namespace xfc::gpu {

static Value above(KernelBuilder &k, Value x, Value y) {
  return arith::CmpIOp::create(k.b, arith::CmpIPredicate::ugt, x, y);
}

// Flips all bits of a negative number, but only the sign of any other, so that unsigned integers order as the numbers
// do; `back` inverts this.
static Value orderOf(KernelBuilder &k, Value bits, bool back) {
  Value sign = arith::ShRSIOp::create(k.b, bits, k.i32Of(31));
  if (back)
    sign = k.bitXor(sign, k.i32Of(-1));
  return k.bitXor(bits, k.bitOr(sign, k.i32Of(std::numeric_limits<int32_t>::min())));
}

static Value complementOf(KernelBuilder &k, Value token) { return k.bitXor(token, k.i32Of(-1)); }

static Value keyOf(KernelBuilder &k, Value number, Value token) {
  Value positiveZero = k.addf(number, 0); // the same key for both zeros, which are equal
  Value order = orderOf(k, k.bits(positiveZero, k.i32), false);
  Value complement = k.i64Of(complementOf(k, token));
  return k.bitOr(k.shiftLeft(k.i64Of(order), 32), complement);
}

static Value numberOf(KernelBuilder &k, Value key) {
  return k.bits(orderOf(k, k.truncated(k.shiftRight(key, 32)), true), k.element);
}

// A list has its keys, best first, and then a threshold: a number below it cannot enter the list.
Values Candidates::none() {
  Values list(count, k.index(0));
  list.push_back(k.scalar(std::numeric_limits<float>::lowest()));
  return list;
}

Values Candidates::with(Values list, Value number, Value token, ArrayRef<int64_t> excluded) {
  Value reaches = arith::CmpFOp::create(k.b, arith::CmpFPredicate::OGE, number, list.back());
  return k.choose(
      reaches,
      [&] {
        Value key = keyOf(k, number, token), zero = k.index(0);
        for (int64_t other : excluded)
          key = k.select(k.equal(token, other), zero, key);
        Values next = list;
        for (int64_t i = 0; i < count; ++i) {
          next[i] = k.select(above(k, key, list[i]), key, list[i]);
          if (i > 0)
            next[i] = k.select(above(k, key, list[i - 1]), list[i - 1], next[i]);
        }
        Value last = next[count - 1], least = numberOf(k, last);
        next[count] = k.select(k.equal(last, zero), list[count], least);
        return next;
      },
      [&] { return list; });
}

SmallVector<Candidates::Candidate> Candidates::best(RowTeam &team, Values list) {
  SmallVector<Candidate> found;
  Value zero = k.index(0);
  for (int64_t place = 0; place < count; ++place) {
    Value key = team.isWarp() ? k.warpLargest(list[0])
                              : team.across(list[0], [&](Value x, Value y) { return k.select(above(k, x, y), x, y); });
    Value none = k.equal(key, zero), mine = k.equal(key, list[0]);
    found.push_back(
        {k.select(none, -INFINITY, numberOf(k, key)), k.select(none, -1, complementOf(k, k.truncated(key)))});
    for (int64_t i = 0; i < count; ++i)
      list[i] = k.select(mine, i + 1 < count ? list[i + 1] : zero, list[i]);
  }
  return found;
}

// Stores one row's results, in one thread. Numbers are relative to `lse`, if given; one that is not a number then is no
// candidate.
template <typename Op>
static void store(KernelBuilder &k, Op op, Value row, ArrayRef<Candidates::Candidate> best, Value wanted, Value lse) {
  const Value nothing = k.scalar(-INFINITY);
  for (auto [i, candidate] : llvm::enumerate(best)) {
    auto [number, token] = candidate;
    if (lse) {
      Value logProb = k.subf(number, lse), some = k.lessf(nothing, logProb); // false for NaN
      number = k.select(some, logProb, nothing);
      token = k.select(some, token, -1);
    }
    if (!op.getTokens().use_empty())
      k.store(token, k.rowOf(op.getTokens(), row) + static_cast<int64_t>(i));
    if (!op.getBest().use_empty())
      k.store(number, k.rowOf(op.getBest(), row) + static_cast<int64_t>(i));
  }
  k.storeIfRead(lse ? k.subf(wanted, lse) : wanted, op.getWantedLogProb(), row);
}

static KernelInfo emitCandidates(KernelBuilder &k, CandidatesOp op) {
  RowsInMemory row(k, widthOf(op.getLogProbs()));
  Candidates candidates(k, widthOf(op.getTokens()));
  return {row.eachRow({op.getLogProbsMutable()}, [&](Value number) {
    View from = k.rowOf(op.getLogProbsMutable(), number);
    Values list = row.loop(from, candidates.none(), [&](Value f, const Values &x, Values s) {
      for (auto [j, v] : llvm::enumerate(x))
        s = candidates.with(s, v, k.add(f, static_cast<int64_t>(j)), op.getExcluded());
      return s;
    });
    const SmallVector<Candidates::Candidate> best = candidates.best(row, list);
    Value lse = op.getRenormalize() ? row.rowSums(from, op.getExcluded()).lse : Value();
    row.once(
        [&] { store(k, op, number, best, k.load(from + k.loadIndex(k.buffer(op.getWantedMutable()) + number)), lse); });
  })};
}

// A warp has a row. The candidates are among the `count` lists whose first ones are best: each of those precedes all of
// any other list. So a lane reads the first number of a few lists, and then a few numbers of these.
static KernelInfo emitMergeCandidates(KernelBuilder &k, MergeCandidatesOp op) {
  const int64_t slabs = widthOf(op.getLse()), count = widthOf(op.getTokens()), lists = std::min(slabs, count);
  RowsInMemory row = RowsInMemory::ofWarp(k, slabs);
  Candidates candidates(k, count);
  const Value nothing = k.scalar(-INFINITY);
  // Calls body for each of the lane's numbers below `end`, which need not be one.
  auto ofLane = [&](int64_t end, const std::function<void(Value, Value)> &body) {
    for (int64_t i = 0; i < end; i += KernelBuilder::warpSize) {
      Value own = k.add(k.lane(), i);
      body(own, k.less(own, end));
    }
  };
  auto numberIf = [&](Value isThere, const View &place) {
    return k.select(isThere, k.loadIf(isThere, place, 1)[0], nothing);
  };
  return {row.eachRow({}, [&](Value number) {
    const View tokens = k.rowOf(op.getSlabTokensMutable(), number), numbers = k.rowOf(op.getLargestMutable(), number),
               sums = k.rowOf(op.getLseMutable(), number);
    Values firsts, lses; // all are loaded before the first is used
    ofLane(slabs, [&](Value slab, Value isSlab) {
      firsts.push_back(numberIf(isSlab, numbers + k.mul(slab, count)));
      lses.push_back(numberIf(isSlab, sums + slab));
    });
    Value most = k.scalar(lowest), exponentials = k.scalar(0);
    for (Value lse : lses)
      most = k.maxf(lse, most);
    most = k.warpMax(most);
    for (Value lse : lses)
      exponentials = k.addf(exponentials, k.exp(k.subf(lse, most)));
    Value lse = k.addf(most, k.log(k.warpSum(exponentials)));

    Values list = candidates.none();
    ofLane(slabs, [&, i = 0](Value slab, Value) mutable { list = candidates.with(list, firsts[i++], slab); });
    const SmallVector<Candidates::Candidate> bestLists = candidates.best(row, list);
    Values all, allTokens;
    ofLane(lists * count, [&](Value i, Value isThere) {
      Value which = k.div(i, count), slab = bestLists[0].token;
      for (int64_t other = 1; other < lists; ++other)
        slab = k.select(k.equal(which, other), bestLists[other].token, slab);
      Value first = k.mul(slab, count), at = k.add(first, k.rem(i, count));
      isThere = k.both(isThere, k.less(-1, slab));
      all.push_back(numberIf(isThere, numbers + at));
      allTokens.push_back(k.loadIf(isThere, tokens + at, 1)[0]);
    });
    list = candidates.none();
    for (auto [one, token] : llvm::zip_equal(all, allTokens))
      list = candidates.with(list, one, token);
    const SmallVector<Candidates::Candidate> best = candidates.best(row, list);
    row.once([&] { store(k, op, number, best, k.load(k.rowOf(op.getWantedLogitMutable(), number)), lse); });
  })};
}

void attachCandidatesKernels(MLIRContext &context) { attachKernels<emitCandidates, emitMergeCandidates>(context); }

} // namespace xfc::gpu
