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
Backend::PackInfo emitPackBlocks(KernelBuilder &k, RankedTensorType weight) {
  const int64_t out = weight.getDimSize(0), in = weight.getDimSize(1), across = blocksOf(in),
                blocks = blocksOf(out) * across;
  constexpr int64_t pieces = blockSide / 8;
  Value block = k.truncated(k.chunk), firstOut = k.mul(k.div(block, across), blockSide),
        firstIn = k.mul(k.rem(block, across), blockSide);
  k.acrossThreads(blockSide * pieces, [&](Value i) {
    Value line = k.div(i, pieces), piece = k.rem(i, pieces), o = k.add(firstOut, line),
          f = k.add(firstIn, k.mul(piece, 8));
    Value ofColumn = k.i64Of(f), ofLine = k.mul(k.i64Of(o), in);
    const View from = k.buffer(PackBuffers::weight) + ofLine + ofColumn;
    Value isLine = k.less(o, out);
    Values numbers, pairs;
    for (int64_t n = 0; n < 8; ++n) {
      const View number = from + n;
      numbers.push_back(k.loadIf(k.both(isLine, k.less(k.add(f, n), in)), number, 1)[0]);
    }
    for (int64_t n = 0; n < 8; n += 2)
      pairs.push_back(pairOfBF16(k, numbers[n], numbers[n + 1]));
    Value swizzled = k.bitXor(piece, k.rem(line, 8)), place = k.mul(k.add(k.mul(line, pieces), swizzled), 4);
    Value before = k.mul(k.i64Of(block), blockSide * blockSide / 2);
    k.store(pairs, k.buffer({PackBuffers::packed, k.i32}) + before + place);
  });
  return {blocks * blockSide * blockSide * 2, blocks};
}

WarpgroupTile::WarpgroupTile(KernelBuilder &k, const Operand &a, const BlockedWeight &b)
    : ThreadSums(16, columns), k(k), a(a), b(b) {
  assert(k.threads == threads && a.along && !a.packed);
  k.cluster = cluster;
  k.registers = registersOfAll;
  weightShared = k.at(k.shared(stages * weightBytes, 1024), k.b.getI8Type());
  rowsShared = k.at(k.shared(stages * rowsBytes), k.b.getI8Type());
  barriers = k.at(k.shared(2 * stages * 8), k.i64);
  own = blockOfCluster(k);
  Value rowOfLane = k.div(k.lane(), 4);
  threadRow = k.add(k.mul(k.warp(), 16), rowOfLane);
  threadColumn = k.mul(k.rem(k.lane(), 4), 2);
}

Value WarpgroupTile::full(const Turn &turn) { return (barriers + turn.stage).data; }
Value WarpgroupTile::empty(const Turn &turn) { return (barriers + k.add(turn.stage, stages)).data; }
View WarpgroupTile::rowsOf(const Turn &turn) { return rowsShared + k.mul(turn.stage, rowsBytes); }
View WarpgroupTile::weightOf(const Turn &turn) { return weightShared + k.mul(turn.stage, weightBytes); }

Values WarpgroupTile::eachTurn(int64_t inner, Values state,
                               const std::function<Values(Value, const Turn &, Values)> &body) {
  state.append({k.i32Of(0), k.i32Of(0)});
  state = k.loop(k.i32Of(0), inner, depth, state, [&](Value at, Values s) {
    const Turn turn{s[s.size() - 2], s.back()};
    s.truncate(s.size() - 2);
    s = body(at, turn, s);
    Value next = k.add(turn.stage, 1), wraps = k.equal(next, stages);
    s.push_back(k.select(wraps, 0, next));
    s.push_back(k.select(wraps, k.bitXor(turn.parity, k.i32Of(1)), turn.parity));
    return s;
  });
  state.truncate(state.size() - 2);
  return state;
}

// 16 threads share a line, each of which copies 16 bytes of every 8th line. Elements beyond the rows or beyond k are 0.
void WarpgroupTile::fetchRows(Value row, Value at, const Turn &turn) {
  constexpr int64_t perLine = depth / 4, step = producers / perLine;
  Value thread = k.sub(k.thread(), consumers), line = k.div(thread, perLine), column = k.mul(k.rem(thread, perLine), 4);
  Value first = k.add(row, line), element = k.i64Of(k.add(at, column));
  const View from = a.data(k.i64Of(first), element);
  Value ofColumn = k.mul(column, 4), place = k.add(k.mul(line, lineBytes), ofColumn);
  const View to = rowsOf(turn) + place;
  auto copy = [&](int64_t n) {
    for (int64_t pass = 0; pass < rows / step; ++pass) {
      Value isLine = k.less(k.add(first, pass * step), a.lines);
      const View source = from.row(pass * step);
      for (int64_t i = 0; i < 4; i += n) {
        Value isColumn = k.less(k.add(k.add(at, column), i), a.width);
        Value isThere = k.both(isLine, isColumn);
        const View part = source + i;
        copyAsync(k, to + (pass * step * lineBytes + i * 4), part, isThere, 4 * n);
      }
    }
  };
  if (a.width % 4)
    return copy(1);
  k.when(k.aligned(a.data), [&] { copy(4); }, [&] { copy(1); });
}

// Loads this block's half of each block of the weight. Beyond the weight's last block of columns, that one is loaded
// again: nobody reads those sums.
void WarpgroupTile::fetchWeight(Value column, Value at, const Turn &turn) {
  constexpr int64_t half = blockBytes / cluster;
  arriveExpecting(k, full(turn), weightBytes);
  const int64_t last = b.blocks[b.along ? 0 : 1] - 1;
  for (int64_t i = 0; i < columns / blockSide; ++i) {
    Value across = k.min(k.add(k.div(column, blockSide), i), last), down = k.div(at, blockSide);
    Value number = b.along ? k.add(k.mul(across, b.blocks[1]), down) : k.add(k.mul(down, b.blocks[1]), across);
    Value ofHalf = k.mul(k.i64Of(own), half);
    const View from = b.data + k.add(k.mul(k.i64Of(number), blockBytes), ofHalf);
    Value barrier = full(turn), place = k.add(k.mul(own, half), i * blockBytes);
    copyToCluster(k, weightOf(turn) + place, from, half, barrier, cluster);
  }
}

// The fragments of the warp's 16 rows, for each 16 of k.
Values WarpgroupTile::fragments(const Turn &turn) {
  Value ofColumn = k.mul(threadColumn, 4), place = k.add(k.mul(threadRow, lineBytes), ofColumn);
  const View line = rowsOf(turn) + place;
  Values all;
  for (int64_t at = 0; at < depth; at += 8)
    for (int64_t r = 0; r < 16; r += 8) {
      Values two = k.load((line + (r * lineBytes + at * 4)).as(k.element), 2);
      all.push_back(pairOfBF16(k, two[0], two[1]));
    }
  return all;
}

void WarpgroupTile::multiply(Value row, Value column, int64_t inner, const std::function<void(ArrayRef<Value>)> &use) {
  k.when(k.equal(k.thread(), 0), [&] {
    for (int32_t stage = 0; stage < stages; ++stage) {
      const Turn turn{k.i32Of(stage), {}};
      initBarrier(k, full(turn), producers + 1);
      initBarrier(k, empty(turn), consumers / KernelBuilder::warpSize * cluster);
    }
    fenceBarriers(k);
  });
  clusterBarrier(k);
  k.when(
      k.less(k.thread(), consumers),
      [&] {
        setRegisters(k, Registers::Get, registersOfConsumers);
        use(eachTurn(inner, Values(columns / 2, k.scalar(0)), [&](Value, const Turn &turn, Values s) {
          waitForPhase(k, full(turn), turn.parity);
          const SwizzledMatrix weight{weightOf(turn).data, b.along, blockBytes};
          s = multiplyWarpgroup(k, s, fragments(turn), weight);
          NVVM::SyncWarpOp::create(k.b, k.i32Of(-1));
          // One lane arrives for each block, predicated: the warps of a product must not diverge.
          Value isBlock = k.less(k.lane(), cluster), block = k.rem(k.lane(), cluster);
          arriveAt(k, empty(turn), block, isBlock);
          return s;
        }));
      },
      [&] {
        setRegisters(k, Registers::GiveUp, registersOfProducers);
        eachTurn(inner, {}, [&](Value at, const Turn &turn, Values s) {
          Value before = k.bitXor(turn.parity, k.i32Of(1));
          waitForPhase(k, empty(turn), before);
          k.when(k.equal(k.thread(), consumers), [&] { fetchWeight(column, at, turn); });
          fetchRows(row, at, turn);
          arriveAfterCopies(k, full(turn));
          return s;
        });
      });
  clusterBarrier(k); // no block exits while the other still copies to it or arrives at its barriers
}

} // namespace xfc::gpu
