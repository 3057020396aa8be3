// Tiles of matrix products on sm_90a.
#include "WarpgroupTile.h"
#include "TensorCore.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include <cassert>

using namespace mlir;

namespace xfc::gpu {

static constexpr int64_t blockSide = 64;

static int64_t blocksOf(int64_t n) { return (n + blockSide - 1) / blockSide; }

BlockedWeight::BlockedWeight(KernelBuilder &k, BufferIndex buffer, RankedTensorType weight, bool along)
    : data(k.buffer(buffer).as(k.b.getI8Type())),
      blocks{blocksOf(weight.getDimSize(0)), blocksOf(weight.getDimSize(1))}, along(along) {}

// A chunk packs one block of the weight; a thread takes 8 elements of a line at a time.
PackInfo emitPackBlocks(KernelBuilder &k, RankedTensorType weight) {
  const int64_t out = weight.getDimSize(0), in = weight.getDimSize(1), across = blocksOf(in),
                blocks = blocksOf(out) * across;
  constexpr int64_t pieces = blockSide / 8;
  Value block = k.truncated(k.chunk), firstOut = k.mul(k.div(block, across), blockSide),
        firstIn = k.mul(k.rem(block, across), blockSide);
  k.acrossThreads(blockSide * pieces, [&](Value i) {
    Value line = k.div(i, pieces), piece = k.rem(i, pieces), o = k.add(firstOut, line),
          f = k.add(firstIn, k.mul(piece, 8));
    Value ofColumn = k.i64Of(f), ofLine = k.mul(k.i64Of(o), in);
    const View from = k.buffer({PackBuffers::weight, k.element}) + ofLine + ofColumn;
    Value isLine = k.less(o, out);
    Values numbers, pairs;
    for (int64_t n = 0; n < 8; ++n) {
      const View number = from + n;
      numbers.push_back(k.loadIf(k.both(isLine, k.less(k.add(f, n), in)), number, 1)[0]);
    }
    for (int64_t n = 0; n < 8; n += 2)
      pairs.push_back(k.pairOfBF16(numbers[n], numbers[n + 1]));
    Value swizzled = k.bitXor(piece, k.rem(line, 8)), place = k.mul(k.add(k.mul(line, pieces), swizzled), 4);
    Value before = k.mul(k.i64Of(block), blockSide * blockSide / 2);
    k.store(pairs, k.buffer({PackBuffers::packed, k.i32}) + before + place);
  });
  return {blocks * blockSide * blockSide * 2, blocks};
}

bool WarpgroupTile::multiplies(const Architecture &architecture, std::optional<ComputeType> compute,
                               ArrayRef<BufferIndex> rows) {
  return architecture.warpgroups && compute == ComputeType::bf16 &&
         llvm::all_of(rows, [](BufferIndex i) { return i.element().isBF16(); });
}

WarpgroupTile::WarpgroupTile(KernelBuilder &k, int64_t columns, const Operand &a, const BlockedWeight &b)
    : WarpgroupTile(k, columns, a, b, Operand(), /*sumsRows=*/false) {}
WarpgroupTile::WarpgroupTile(KernelBuilder &k, int64_t columns, const Operand &a, const Operand &b, bool sumsRows)
    : WarpgroupTile(k, columns, a, std::nullopt, b, sumsRows) {}

WarpgroupTile::WarpgroupTile(KernelBuilder &k, int64_t columns, const Operand &a, std::optional<BlockedWeight> weight,
                             const Operand &b, bool sumsRows)
    : ThreadSums(16, columns), columns(columns), k(k), a(a), weight(weight), b(b), sumsRows(sumsRows) {
  assert(k.threads == threads && a.data.element.isBF16() && a.along == weight.has_value());
  k.cluster = cluster();
  k.registers = registersOfAll;
  const Type byte = k.b.getI8Type();
  bShared = k.at(k.shared(stages() * bBytes(), 1024), byte);
  aShared = k.at(k.shared(stages() * aBytes, 1024), byte);
  if (sumsRows)
    ones = k.at(k.shared(8 * lineBytes, 1024), k.i32);
  barriers = k.at(k.shared(2 * stages() * 8), k.i64);
  own = blockOfCluster(k);
  Value rowOfLane = k.div(k.lane(), 4);
  threadRow = k.add(k.mul(k.warp(), 16), rowOfLane);
  threadColumn = k.mul(k.rem(k.lane(), 4), 2);
}

Value WarpgroupTile::full(const Turn &turn) { return (barriers + turn.stage).data; }
Value WarpgroupTile::empty(const Turn &turn) { return (barriers + k.add(turn.stage, stages())).data; }
View WarpgroupTile::aOf(const Turn &turn) { return aShared + k.mul(turn.stage, aBytes); }
View WarpgroupTile::bOf(const Turn &turn) { return bShared + k.mul(turn.stage, bBytes()); }

Values WarpgroupTile::eachTurn(const Term &inner, Turn &turn, Values state,
                               const std::function<Values(Value, const Turn &, Values)> &body) {
  state.append({turn.stage, turn.parity});
  state = k.loop(k.i32Of(0), inner, depth, state, [&](Value at, Values s) {
    const Turn now{s[s.size() - 2], s.back()};
    s.truncate(s.size() - 2);
    s = body(at, now, s);
    Value next = k.add(now.stage, 1), wraps = k.equal(next, stages());
    s.push_back(k.select(wraps, 0, next));
    s.push_back(k.select(wraps, k.bitXor(now.parity, k.i32Of(1)), now.parity));
    return s;
  });
  turn = {state[state.size() - 2], state.back()};
  state.truncate(state.size() - 2);
  return state;
}

// Copies blocks of 64 columns of these lines. 8 threads share a line of a block, and each of them copies 16 bytes of
// every 16th line, to the place that the swizzle gives them. Elements beyond the rows are 0.
void WarpgroupTile::fetchRows(const Operand &from, Value line, Value column, int64_t lines, int64_t blocks,
                              const View &to) {
  constexpr int64_t perLine = lineBytes / 16, step = producers / perLine;
  Value thread = k.sub(k.thread(), consumers), ownLine = k.div(thread, perLine), piece = k.rem(thread, perLine);
  Value first = k.add(line, ownLine), firstColumn = k.add(column, k.mul(piece, 8)), element = k.i64Of(firstColumn);
  const View source = from.data(k.i64Of(first), element);
  Value swizzled = k.bitXor(piece, k.rem(ownLine, 8)), ofPiece = k.mul(swizzled, 16),
        place = k.add(k.mul(ownLine, lineBytes), ofPiece);
  const View target = to + place;
  for (int64_t pass = 0; pass < lines / step; ++pass) {
    Value isLine = k.less(k.add(first, pass * step), from.lines);
    const View sourceLine = source.row(pass * step);
    for (int64_t block = 0; block < blocks; ++block) {
      Value isColumn = k.less(k.add(firstColumn, block * side), from.width);
      const View there = target + (block * lines + pass * step) * lineBytes, here = sourceLine + block * side;
      copyAsync(k, there, here, k.both(isLine, isColumn));
    }
  }
}

// Loads this block's half of each block of the weight. Beyond the weight's last block of columns, that one is loaded
// again: nobody reads those sums.
void WarpgroupTile::fetchWeight(Value column, Value at, const Turn &turn) {
  constexpr int64_t half = blockBytes / clusterOfWeight;
  arriveExpecting(k, full(turn), bBytes());
  const int64_t last = weight->blocks[weight->along ? 0 : 1] - 1;
  for (int64_t i = 0; i < columns / side; ++i) {
    Value across = k.min(k.add(k.div(column, side), i), last), down = k.div(at, side);
    Value number =
        weight->along ? k.add(k.mul(across, weight->blocks[1]), down) : k.add(k.mul(down, weight->blocks[1]), across);
    Value ofHalf = k.mul(k.i64Of(own), half);
    const View from = weight->data + k.add(k.mul(k.i64Of(number), blockBytes), ofHalf);
    Value barrier = full(turn), place = k.add(k.mul(own, half), i * blockBytes);
    copyToCluster(k, bOf(turn) + place, from, half, barrier, clusterOfWeight);
  }
}

void WarpgroupTile::inRoles(const std::function<void()> &consume, const std::function<void()> &produce) {
  if (sumsRows)
    k.acrossThreads(8 * lineBytes / 4, [&](Value i) {
      Value pair = k.i32Of(0x3f803f80); // 1 and 1
      k.store(pair, ones + i);
    });
  k.when(k.equal(k.thread(), 0), [&] {
    for (int32_t stage = 0; stage < stages(); ++stage) {
      const Turn turn{k.i32Of(stage), {}};
      initBarrier(k, full(turn), producers + (weight ? 1 : 0));
      initBarrier(k, empty(turn), consumers / KernelBuilder::warpSize * cluster());
    }
    fenceBarriers(k);
  });
  if (sumsRows)
    k.barrier();
  clusterBarrier(k);
  k.when(
      k.less(k.thread(), consumers),
      [&] {
        setRegisters(k, Registers::Get, registersOfConsumers);
        consume();
        setRegisters(k, Registers::GiveUp, registersOfAll);
      },
      [&] {
        setRegisters(k, Registers::GiveUp, registersOfProducers);
        produce();
        setRegisters(k, Registers::Get, registersOfAll); // what follows is the same code for all
      });
  clusterBarrier(k); // no block exits while the other still copies to it or arrives at its barriers
}

Values WarpgroupTile::consume(const Term &inner, Turn &turn) {
  Value warpgroup = k.mul(k.div(k.warp(), 4), blockBytes);
  return eachTurn(
      inner, turn, Values(columns / 2 + (sumsRows ? 4 : 0), k.scalar(0)), [&](Value, const Turn &now, Values s) {
        waitForPhase(k, full(now), now.parity);
        // The rows were written by copies of threads, which wgmma sees only after this fence.
        fenceProxy(k);
        const SwizzledMatrix left{(aOf(now) + warpgroup).data, a.along, blockBytes},
            right{bOf(now).data, weight && weight->along, blockBytes};
        std::vector<WarpgroupProduct> products = {
            {Values(s.begin(), s.begin() + columns / 2), left, {}, right, columns, depth}};
        if (sumsRows) // 8 columns of ones
          products.push_back({Values(s.begin() + columns / 2, s.end()), left, {}, {ones.data, true, 0}, 8, depth});
        s.clear();
        for (const Values &sums : multiplyWarpgroup(k, products))
          s.append(sums);
        NVVM::SyncWarpOp::create(k.b, k.i32Of(-1));
        // One lane arrives for each block, predicated: the warps of a product must not diverge.
        Value isBlock = k.less(k.lane(), cluster()), block = k.rem(k.lane(), cluster());
        arriveAt(k, empty(now), block, isBlock);
        return s;
      });
}

void WarpgroupTile::produce(Value row, Value column, const Term &inner, Turn &turn) {
  eachTurn(inner, turn, {}, [&](Value at, const Turn &now, Values s) {
    Value before = k.bitXor(now.parity, k.i32Of(1));
    waitForPhase(k, empty(now), before);
    if (weight) {
      k.when(k.equal(k.thread(), consumers), [&] { fetchWeight(column, at, now); });
      fetchRows(a, row, at, rows, 1, aOf(now));
    } else {
      fetchRows(a, at, row, depth, rows / side, aOf(now));
      fetchRows(b, at, column, depth, columns / side, bOf(now));
    }
    arriveAfterCopies(k, full(now));
    return s;
  });
}

Values WarpgroupTile::eachTile(const Term &end, int64_t step, Values state,
                               const std::function<Values(Value, Turn &, Values)> &body) {
  const Turn first = firstTurn();
  state.append({first.stage, first.parity});
  state = k.loop(k.i32Of(0), end, step, state, [&](Value i, Values now) {
    Turn turn{now[now.size() - 2], now.back()};
    now.truncate(now.size() - 2);
    now = body(i, turn, std::move(now));
    now.append({turn.stage, turn.parity});
    return now;
  });
  state.truncate(state.size() - 2);
  return state;
}

void WarpgroupTile::multiply(Value row, Value column, const Term &inner,
                             const std::function<void(ArrayRef<Value>)> &use) {
  inRoles(
      [&] {
        Turn turn = firstTurn();
        use(consume(inner, turn));
      },
      [&] {
        Turn turn = firstTurn();
        produce(row, column, inner, turn);
      });
}

void WarpgroupTile::multiplyAll(Value count, int64_t inner, const std::function<Place(Value)> &place,
                                const std::function<void(const Place &, ArrayRef<Value>)> &use,
                                const std::function<void(const Place &)> &prefetch) {
  Value depthOfTile = k.i32Of(static_cast<int32_t>(inner));
  inRoles(
      [&] {
        eachTile(count, 1, {}, [&](Value i, Turn &turn, Values none) {
          Values sums = consume(depthOfTile, turn);
          use(place(i), sums);
          return none;
        });
      },
      [&] {
        eachTile(count, 1, {}, [&](Value i, Turn &turn, Values none) {
          const Place of = place(i);
          prefetch(of);
          produce(of.row, of.column, depthOfTile, turn);
          return none;
        });
      });
}

void WarpgroupTile::prefetch(BufferIndex buffer, const Place &place, int64_t width) {
  static_assert(producers == rows); // a thread takes a row
  if (!buffer.element().isBF16())
    return;
  const View all = k.rowsOf(buffer);
  Value row = k.i64Of(k.add(place.row, k.sub(k.thread(), consumers))), isRow = k.less(row, k.rowCount());
  Value column = k.i64Of(place.column);
  const View line = all.row(row) + column;
  for (int64_t i = 0; i < columns; i += 64) { // 128 bytes, a line of the cache
    Value isThere = k.both(isRow, k.less(k.add(place.column, i), width));
    k.ptx("@$0 prefetch.global.L2 [$1];", {isThere, (line + i).data}, {});
  }
}

void WarpgroupTile::multiplyEach(Value row, int64_t end, int64_t inner, const std::function<Values()> &begin,
                                 const std::function<Values(Value, ArrayRef<Value>, Values)> &use,
                                 const std::function<void(Values)> &last) {
  Value depthOfTile = k.i32Of(static_cast<int32_t>(inner));
  Value all = k.i32Of(static_cast<int32_t>(end));
  inRoles(
      [&] {
        last(eachTile(all, columns, begin(), [&](Value column, Turn &turn, Values now) {
          Values sums = consume(depthOfTile, turn);
          return use(column, sums, std::move(now));
        }));
      },
      [&] {
        eachTile(all, columns, {}, [&](Value column, Turn &turn, Values now) {
          produce(row, column, depthOfTile, turn);
          return now;
        });
      });
}

} // namespace xfc::gpu
