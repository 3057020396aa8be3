// Tiles of matrix products.
#include "ProductTile.h"
#include "Emitters.h"
#include "TensorCore.h"
#include <cassert>

using namespace mlir;

namespace xfc::gpu {

Operand rowsOperand(KernelBuilder &k, BufferIndex buffer, int64_t width, bool along) {
  // Along k, rows of bf16 are copied as packed weights are; a product that sums over rows takes them through registers.
  return {k.rowsOf(buffer), k.truncated(k.rowCount()), width, along, along && buffer.element().isBF16()};
}

Operand weightOperand(KernelBuilder &k, BufferIndex buffer, RankedTensorType weight, bool bf16, bool along) {
  const int64_t columns = weight.getDimSize(1), width = bf16 ? packedColumns(columns) : columns;
  const View data = k.buffer(buffer).inRows(width);
  return {bf16 ? data.as(k.b.getBF16Type()) : data, k.i32Of(static_cast<int32_t>(weight.getDimSize(0))), width, along,
          bf16};
}

//===--------------------------------------------------------------------------------------------------------===//
// Pairs of columns
//===--------------------------------------------------------------------------------------------------------===//

PairAccess::PairAccess(KernelBuilder &k, int64_t columns)
    : k(k), columns(columns), aligned(k.boolean(columns % 2 == 0)) {}

void PairAccess::include(const View &rows) {
  const int64_t bytes = CodeBuilder::bytesOf(rows.element);
  Value address = LLVM::PtrToIntOp::create(k.b, k.i64, rows.data);
  aligned = k.both(aligned, k.equal(k.bitAnd(k.bitOr(address, k.mul(rows.stride, bytes)), 2 * bytes - 1), 0));
}
void PairAccess::include(BufferIndex i) {
  Value apart = k.stride(i);
  include(k.buffer(i).inRows(apart));
}

std::array<Value, 3> PairAccess::conditions(Value isLine, Value column) const {
  auto within = [&](int64_t i) { return k.both(isLine, k.less(column, columns - i)); };
  Value apart = k.equal(aligned, k.boolean(false));
  return {k.both(within(1), aligned), k.both(within(0), apart), k.both(within(1), apart)};
}

std::pair<View, Value> PairAccess::piece(const View &line, Value isLine, Value column) const {
  // A lane has its pairs 2 columns after those of the lane before it, and its piece 8.
  Value lane = k.bitAnd(k.lane(), 3), own = k.add(column, k.mul(lane, 8 - 2)), element = k.i64Of(own);
  const View place = (line + element).as(k.i32);
  return {place, k.both(isLine, k.less(own, columns))};
}

// Element i of lane l becomes element l of lane i, for each four lanes.
static Values exchanged(KernelBuilder &k, Values own) {
  for (int64_t mask = 1; mask < 4; mask *= 2) {
    Value isUpper = k.less(0, k.bitAnd(k.lane(), mask));
    for (int64_t i = 0; i < 4; ++i) {
      if (i & mask)
        continue;
      Value &low = own[i], &high = own[i + mask];
      Value received = k.shuffleXor(k.select(isUpper, low, high), mask);
      low = k.select(isUpper, received, low);
      high = k.select(isUpper, high, received);
    }
  }
  return own;
}

Values PairAccess::numbersOf(const View &line, ArrayRef<Value> fetched) const {
  if (!line.element.isBF16())
    return Values(fetched);
  Values numbers;
  for (size_t i = 0; i < fetched.size(); i += 4)
    llvm::append_range(numbers, k.halvesOf(exchanged(k, Values(fetched.slice(i, 4)))));
  return numbers;
}

Values PairAccess::fetch(const View &line, Value isLine, Value column, int64_t pairs) const {
  Values numbers;
  if (line.element.isBF16()) {
    for (int64_t pair = 0; pair < pairs; pair += 4) {
      const auto [place, isThere] = piece(line, isLine, k.add(column, 8 * pair));
      llvm::append_range(numbers, k.loadIf(isThere, place, 4));
    }
    return numbers;
  }
  for (int64_t pair = 0; pair < pairs; ++pair) {
    Value first = k.add(column, 8 * pair), element = k.i64Of(first);
    const View place = line + element;
    const std::array<Value, 3> when = conditions(isLine, first);
    llvm::append_range(numbers, k.ptx("mov.b32 $0, 0; mov.b32 $1, 0; @$2 ld.global.v2.b32 {$0, $1}, [$5]; @$3 "
                                      "ld.global.b32 $0, [$5]; @$4 ld.global.b32 $1, [$5+4];",
                                      {when[0], when[1], when[2], place.data}, {k.element, k.element}));
  }
  return numbers;
}

void PairAccess::store(ArrayRef<Value> numbers, const View &line, Value isLine, Value column) const {
  const auto pairs = static_cast<int64_t>(numbers.size() / 2);
  if (line.element.isBF16()) {
    for (int64_t pair = 0; pair < pairs; pair += 4) {
      Values rounded;
      for (int64_t i = 2 * pair; i < 2 * pair + 8; i += 2)
        rounded.push_back(k.pairOfBF16(numbers[i], numbers[i + 1]));
      const auto [place, isThere] = piece(line, isLine, k.add(column, 8 * pair));
      k.storeIf(isThere, exchanged(k, rounded), place);
    }
    return;
  }
  for (int64_t pair = 0; pair < pairs; ++pair) {
    Value first = k.add(column, 8 * pair), element = k.i64Of(first);
    const View place = line + element;
    const std::array<Value, 3> when = conditions(isLine, first);
    k.ptx("@$0 st.global.v2.b32 [$3], {$4, $5}; @$1 st.global.b32 [$3], $4; @$2 st.global.b32 [$3+4], $5;",
          {when[0], when[1], when[2], place.data, numbers[2 * pair], numbers[2 * pair + 1]}, {});
  }
}

//===--------------------------------------------------------------------------------------------------------===//
// From memory to shared memory
//===--------------------------------------------------------------------------------------------------------===//

ProductTile::Side::Side(KernelBuilder &k, const Operand &operand, int64_t outer, const TileShape &tile, bool bf16)
    : operand(operand), outer(outer), depth(tile.depth), threads(tile.threads()), bf16(bf16) {
  assert(threads % perLine() == 0 && lines() * perLine() % threads == 0 && (bf16 || !operand.packed));
  shared = k.at(k.shared(2 * bytes(), 128), k.b.getI8Type());
  line = k.div(k.thread(), perLine());
  column = k.mul(k.rem(k.thread(), perLine()), vector());
}

// The position of a line's 16-byte piece `piece`: the eight lines of a matrix have it in different banks.
Value ProductTile::Side::permuted(KernelBuilder &k, Value line, Value piece) const {
  const int64_t pieces = std::min<int64_t>(8, width() / 8);
  return k.bitXor(piece, k.bitAnd(k.div(line, 8 / pieces), pieces - 1));
}

void ProductTile::Side::begin(KernelBuilder &k, Value at) {
  first = at;
  Value fromLine = operand.along ? k.add(at, line) : line, fromColumn = operand.along ? column : k.add(at, column);
  Value element = k.i64Of(fromColumn);
  from = operand.data(k.i64Of(fromLine), element);
}

// Starts loading the block from k = at on: a packed operand is copied to the slot, any other is returned in registers.
// Elements beyond the matrix are 0.
Values ProductTile::Side::fetch(KernelBuilder &k, Value at, const View &slot) const {
  const int64_t step = threads / perLine();
  Value distance = k.i64Of(at);
  const View start = operand.along ? from + distance : from.row(distance);
  Value firstLine = k.add(line, operand.along ? first : at), firstColumn = k.add(column, operand.along ? at : first);
  auto within = [&](int64_t element) { return k.less(k.add(firstColumn, element), operand.width); };
  auto place = [&](int64_t pass) { return start.row(pass * step); };
  auto isLine = [&](int64_t pass) { return k.less(k.add(firstLine, pass * step), operand.lines); };
  if (operand.packed) {
    for (int64_t pass = 0; pass < passes(); ++pass) {
      Value ofLine = k.add(k.mul(line, lineBytes()), pass * step * lineBytes()), piece = k.div(column, 8),
            to = k.add(k.mul(permuted(k, k.add(line, pass * step), piece), 16), ofLine);
      Value hasLine = isLine(pass), isThere = k.both(within(0), hasLine);
      const View source = place(pass);
      copyAsync(k, slot + to, source, isThere);
    }
    return {};
  }
  auto load = [&](int64_t n) {
    Values values;
    for (int64_t pass = 0; pass < passes(); ++pass)
      for (int64_t element = 0; element < 4; element += n) {
        const View part = place(pass) + element;
        Value hasLine = isLine(pass);
        Values loaded = k.loadIf(k.both(within(element), hasLine), part, n);
        values.append(loaded.begin(), loaded.end());
      }
    return values;
  };
  if (operand.width % 4)
    return load(1);
  return k.choose(k.aligned(operand.data), [&] { return load(4); }, [&] { return load(1); });
}

void ProductTile::Side::put(KernelBuilder &k, ArrayRef<Value> values, const View &slot) const {
  const int64_t step = threads / perLine();
  for (int64_t pass = 0; !operand.packed && pass < passes(); ++pass) {
    ArrayRef<Value> vector = values.slice(4 * pass, 4);
    Value to = k.add(k.mul(line, lineBytes()), pass * step * lineBytes());
    if (!bf16) {
      k.store(vector, (slot + k.add(to, k.mul(column, 4))).as(k.element));
      continue;
    }
    Value number = k.div(column, 8), piece = k.mul(permuted(k, k.add(line, pass * step), number), 16),
          half = k.mul(k.bitAnd(column, 4), 2);
    const View pairs = (slot + k.add(to, k.add(piece, half))).as(k.i32);
    k.store({k.pairOfBF16(vector[0], vector[1]), k.pairOfBF16(vector[2], vector[3])}, pairs);
  }
}

//===--------------------------------------------------------------------------------------------------------===//
// From shared memory to sums
//===--------------------------------------------------------------------------------------------------------===//

ProductTile::ProductTile(KernelBuilder &k, const TileShape &tile, bool bf16, const Operand &a, const Operand &b)
    : ThreadSums(tile.warpRows, tile.warpColumns), k(k), tile(tile), bf16(bf16), a(k, a, tile.rows, tile, bf16),
      b(k, b, tile.columns, tile, bf16) {
  assert(k.threads == tile.threads());
  const int64_t across = tile.columns / tile.warpColumns;
  warpRow = k.mul(k.div(k.warp(), across), tile.warpRows);
  warpColumn = k.mul(k.rem(k.warp(), across), tile.warpColumns);
  threadRow = k.add(warpRow, k.div(k.lane(), 4));
  threadColumn = k.add(warpColumn, k.mul(k.rem(k.lane(), 4), 2));
}

View ProductTile::slotOf(const Side &side, Value which) { return side.shared + k.mul(which, side.bytes()); }

Values ProductTile::multiply(Value row, Value column, Value inner, Values *shares) {
  Value zero = k.i32Of(0);
  const int64_t sharesCount = shares ? a.vector() : 0;
  auto arrive = [&](Value at, Value which, const std::function<void()> &meanwhile) {
    const View aSlot = slotOf(a, which), bSlot = slotOf(b, which);
    // Asynchronous copies are started before other operands are loaded, so that their addresses no longer need
    // registers when the loads fill these.
    Values aValues, bValues;
    auto fetch = [&](bool packed) {
      if (a.operand.packed == packed)
        aValues = a.fetch(k, at, aSlot);
      if (b.operand.packed == packed)
        bValues = b.fetch(k, at, bSlot);
    };
    fetch(true);
    commitCopies(k);
    fetch(false);
    meanwhile();
    a.put(k, aValues, aSlot);
    b.put(k, bValues, bSlot);
    return aValues;
  };
  // Four consecutive values of a thread are adjacent in a line.
  auto addShares = [&](MutableArrayRef<Value> sums, ArrayRef<Value> values) {
    for (size_t i = 0; !sums.empty() && i < values.size(); ++i)
      sums[i % sums.size()] = k.addf(sums[i % sums.size()], values[i]);
  };
  k.barrier(); // both slots may still be in use
  a.begin(k, row);
  b.begin(k, column);
  const int64_t count = rowsOfThread() * pairsOfThread() * 2;
  Values sums(count + sharesCount, k.scalar(0));
  addShares(MutableArrayRef<Value>(sums).drop_front(count), arrive(zero, zero, [] {}));
  sums = k.loop(zero, inner, tile.depth, sums, [&](Value at, Values state) {
    Value which = k.bitAnd(k.div(at, tile.depth), 1);
    waitForCopies(k, 0);
    k.barrier(); // this block has arrived, and the one before is no longer read
    Value other = k.bitXor(which, k.i32Of(1));
    Values next = arrive(k.add(at, tile.depth), other, [&] {
      const View bSlot = slotOf(b, which), aSlot = slotOf(a, which);
      if (bf16)
        multiplyBF16(aSlot, bSlot, state);
      else
        multiplyF32(aSlot, bSlot, state);
    });
    addShares(MutableArrayRef<Value>(state).drop_front(count), next);
    return state;
  });
  if (shares)
    shares->assign(sums.begin() + count, sums.end());
  sums.truncate(count);
  return sums;
}

Value ProductTile::sumRows(ArrayRef<Value> shares) {
  const int64_t step = a.threads / a.perLine();
  assert(step * tile.rows * 4 <= 2 * a.bytes() && tile.rows <= k.threads);
  const View all = a.shared.as(k.element);
  k.barrier();
  k.store(shares, all + k.add(k.mul(a.line, tile.rows), a.column));
  k.barrier();
  Value own = k.rem(k.thread(), tile.rows), sum = k.scalar(0);
  for (int64_t i = 0; i < step; ++i)
    sum = k.addf(sum, k.load(all + k.add(own, i * tile.rows)));
  return sum;
}

void ProductTile::multiplyBF16(const View &aSlot, const View &bSlot, Values &sums) {
  // A load reads four 8 x 8 matrices. Matrix 1 holds the next 8 rows of a, and the next 8 values of k of b; matrix 2
  // holds the next 8 values of k of a, and the next 8 columns of b. Where k runs from line to line of the memory, a
  // step along k is one of lines, and otherwise one of pieces of a line.
  Value low = k.bitAnd(k.lane(), 7), second = k.bitAnd(k.div(k.lane(), 8), 1), third = k.div(k.lane(), 16);
  auto fragments = [&](const Side &side, const View &slot, Value warpFirst, bool lineFirst, int64_t count,
                       int64_t step) {
    Value line = k.add(low, k.mul(lineFirst ? second : third, 8)), piece = lineFirst ? third : second;
    if (side.operand.along)
      line = k.add(line, warpFirst);
    else
      piece = k.add(piece, k.div(warpFirst, 8));
    Value base = k.mul(line, side.lineBytes()), permuted = side.permuted(k, line, piece);
    Values all;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t lines = side.operand.along ? i : step, pieces = side.operand.along ? step : i;
      // 2 * pieces has no bits in common with the first piece, so xor adds it, also after the permutation.
      Value ofPiece = k.mul(k.bitXor(permuted, k.i32Of(static_cast<int32_t>(2 * pieces))), 16),
            to = k.add(k.add(base, lines * 16 * side.lineBytes()), ofPiece);
      Values four = loadMatrices(k, slot + to, !side.operand.along);
      all.append(four.begin(), four.end());
    }
    return all;
  };
  // Eight columns of b have two matrices for a step, so that a load reads those of two steps. As above, xor adds.
  auto fragmentsOfEight = [&](int64_t step) {
    assert(b.operand.along && step % 2 == 0 && tile.depth % 32 == 0);
    Value line = k.add(low, warpColumn), piece = b.permuted(k, line, k.div(k.lane(), 8)),
          ofPiece = k.mul(k.bitXor(piece, k.i32Of(static_cast<int32_t>(2 * step))), 16),
          to = k.add(k.mul(line, b.lineBytes()), ofPiece);
    return loadMatrices(k, bSlot + to, false);
  };
  Values right;
  for (int64_t step = 0; step < tile.depth / 16; ++step) {
    Values left = fragments(a, aSlot, warpRow, a.operand.along, tile.warpRows / 16, step);
    if (tile.warpColumns > 8)
      right = fragments(b, bSlot, warpColumn, !b.operand.along, tile.warpColumns / 16, step);
    else if (step % 2 == 0)
      right = fragmentsOfEight(step);
    else
      right = Values(ArrayRef<Value>(right).drop_front(2));
    for (int64_t i = 0; i < tile.warpRows / 16; ++i)
      for (int64_t j = 0; j < pairsOfThread(); ++j)
        multiplyMatrices(k, ArrayRef<Value>(left).slice(4 * i, 4), ArrayRef<Value>(right).slice(2 * j, 2),
                         MutableArrayRef<Value>(sums).slice(sumAt(2 * i, j, 0), 4));
  }
}

void ProductTile::multiplyF32(const View &aSlot, const View &bSlot, Values &sums) {
  switch (k.architecture.f32Core) {
  case F32Core::FMA:
    return multiplyAdd(aSlot, bSlot, sums);
  case F32Core::TF32x3:
    return multiplySplitF32(aSlot, bSlot, sums);
  }
}

void ProductTile::multiplyAdd(const View &aSlot, const View &bSlot, Values &sums) {
  constexpr int64_t unroll = 4;
  // numbers[n][u]: the element of row or column outer + n, for n < count, at k = at + u.
  auto numbers = [&](const Side &side, const View &slot, Value outer, int64_t count, int64_t at) {
    SmallVector<Values> result(count);
    auto place = [&](Value line, Value column) {
      Value ofColumn = k.mul(column, 4);
      return (slot + k.add(k.mul(line, side.lineBytes()), ofColumn)).as(k.element);
    };
    if (side.operand.along)
      for (int64_t n = 0; n < count; ++n) {
        Value first = k.i32Of(static_cast<int32_t>(at));
        result[n] = k.load(place(k.add(outer, n), first), unroll);
      }
    else
      for (int64_t u = 0; u < unroll; ++u)
        for (auto [n, value] : llvm::enumerate(k.load(place(k.i32Of(static_cast<int32_t>(at + u)), outer), count)))
          result[n].push_back(value);
    return result;
  };
  for (int64_t at = 0; at < tile.depth; at += unroll) {
    SmallVector<Values> left;
    for (int64_t r = 0; r < rowsOfThread(); ++r)
      left.push_back(numbers(a, aSlot, k.add(threadRow, 8 * r), 1, at)[0]);
    for (int64_t j = 0; j < pairsOfThread(); ++j) {
      SmallVector<Values> right = numbers(b, bSlot, k.add(threadColumn, 8 * j), 2, at);
      for (int64_t u = 0; u < unroll; ++u)
        for (int64_t r = 0; r < rowsOfThread(); ++r)
          for (int64_t e = 0; e < 2; ++e) {
            Value &sum = sums[sumAt(r, j, e)];
            sum = k.fma(left[r][u], right[e][u], sum);
          }
    }
  }
}

void ProductTile::multiplySplitF32(const View &aSlot, const View &bSlot, Values &sums) {
  Value group = k.div(k.lane(), 4), within = k.rem(k.lane(), 4);
  // Loads two numbers of this lane's row or column in each of `count` groups of eight that begin at warpFirst: those of
  // k = at + within and of the fourth k after it.
  auto numbers = [&](const Side &side, const View &slot, Value warpFirst, int64_t count, int64_t at) {
    Value outer = k.add(warpFirst, group), inner = k.add(within, at);
    Value line = side.operand.along ? outer : inner, column = k.mul(side.operand.along ? inner : outer, 4);
    const View first = slot + k.add(k.mul(line, side.lineBytes()), column);
    // The distances in bytes between two groups, and between the two numbers of a group.
    const int64_t apart = 8 * (side.operand.along ? side.lineBytes() : 4),
                  further = 4 * (side.operand.along ? 4 : side.lineBytes());
    Values all;
    for (int64_t i = 0; i < count; ++i)
      for (int64_t half = 0; half < 2; ++half)
        all.push_back(k.load((first + (i * apart + half * further)).as(k.element)));
    return all;
  };
  for (int64_t at = 0; at < tile.depth; at += 8) {
    Values left = numbers(a, aSlot, warpRow, rowsOfThread(), at);
    for (size_t i = 0; i < left.size(); i += 4) // multiplySplit takes both rows of a column first
      std::swap(left[i + 1], left[i + 2]);
    const SplitNumbers rows(k, left);
    for (int64_t j = 0; j < pairsOfThread(); ++j) {
      const SplitNumbers columns(k, numbers(b, bSlot, k.add(warpColumn, 8 * j), 1, at));
      for (int64_t i = 0; i < tile.warpRows / 16; ++i)
        multiplySplit(k, rows, 4 * i, columns, 0, MutableArrayRef<Value>(sums).slice(sumAt(2 * i, j, 0), 4));
    }
  }
}

} // namespace xfc::gpu
