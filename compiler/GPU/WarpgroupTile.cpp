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
    : data(k.buffer(buffer)), blocks{blocksOf(weight.getDimSize(0)), blocksOf(weight.getDimSize(1))}, along(along) {}

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
    Value from = k.offset(k.offset(k.buffer(PackBuffers::weight), k.mul(k.i64Of(o), in)), k.i64Of(f)),
          isLine = k.less(o, k.i32Of(static_cast<int32_t>(out)));
    Values numbers, pairs;
    for (int64_t n = 0; n < 8; ++n)
      numbers.push_back(
          k.loadIf(k.both(isLine, k.less(k.add(f, n), k.i32Of(static_cast<int32_t>(in)))), k.offset(from, n), 1)[0]);
    for (int64_t n = 0; n < 8; n += 2)
      pairs.push_back(pairOfBF16(k, numbers[n], numbers[n + 1]));
    Value place = k.add(k.mul(line, pieces), k.bitXor(piece, k.rem(line, 8)));
    k.store(pairs,
            k.offset(k.offset(k.buffer(PackBuffers::packed), k.mul(k.i64Of(block), blockSide * blockSide / 2), k.i32),
                     k.mul(place, 4), k.i32));
  });
  return {blocks * blockSide * blockSide * 2, blocks};
}

WarpgroupTile::WarpgroupTile(KernelBuilder &k, const Operand &a, const BlockedWeight &b)
    : ThreadSums(16, columns), k(k), a(a), b(b) {
  assert(k.threads == threads && a.along && !a.packed);
  k.cluster = cluster;
  k.registers = registersOfAll;
  weightShared = k.shared(stages * weightBytes, 1024);
  rowsShared = k.shared(stages * rowsBytes);
  barriers = k.shared(2 * stages * 8);
  own = blockOfCluster(k);
  threadRow = k.add(k.mul(k.warp(), 16), k.div(k.lane(), 4));
  threadColumn = k.mul(k.rem(k.lane(), 4), 2);
}

Value WarpgroupTile::full(const Turn &turn) { return k.offset(barriers, turn.stage, k.i64); }
Value WarpgroupTile::empty(const Turn &turn) { return k.offset(barriers, k.add(turn.stage, stages), k.i64); }
Value WarpgroupTile::rowsOf(const Turn &turn) {
  return k.offset(rowsShared, k.mul(turn.stage, rowsBytes), k.b.getI8Type());
}
Value WarpgroupTile::weightOf(const Turn &turn) {
  return k.offset(weightShared, k.mul(turn.stage, weightBytes), k.b.getI8Type());
}

Values WarpgroupTile::eachTurn(int64_t inner, Values state,
                               const std::function<Values(Value, const Turn &, Values)> &body) {
  state.append({k.i32Of(0), k.i32Of(0)});
  state = k.loop(k.i32Of(0), k.i32Of(static_cast<int32_t>(inner)), depth, state, [&](Value at, Values s) {
    const Turn turn{s[s.size() - 2], s.back()};
    s.truncate(s.size() - 2);
    s = body(at, turn, s);
    Value next = k.add(turn.stage, 1), wraps = k.equal(next, k.i32Of(stages));
    s.push_back(k.select(wraps, k.i32Of(0), next));
    s.push_back(k.select(wraps, k.bitXor(turn.parity, k.i32Of(1)), turn.parity));
    return s;
  });
  state.truncate(state.size() - 2);
  return state;
}

// 16 threads share a line, each of which copies 16 bytes of every 8th line. Elements beyond the rows or beyond k are 0.
void WarpgroupTile::fetchRows(Value row, Value at, const Turn &turn) {
  constexpr int64_t perLine = depth / 4, step = producers / perLine;
  Value thread = k.sub(k.thread(), k.i32Of(consumers)), line = k.div(thread, perLine),
        column = k.mul(k.rem(thread, perLine), 4);
  Value first = k.add(row, line),
        from = k.offset(k.offset(a.data, k.mul(k.i64Of(first), a.stride)), k.i64Of(k.add(at, column)));
  Value to = k.offset(rowsOf(turn), k.add(k.mul(line, lineBytes), k.mul(column, 4)), k.b.getI8Type());
  auto copy = [&](int64_t n) {
    for (int64_t pass = 0; pass < rows / step; ++pass) {
      Value isLine = k.less(k.add(first, pass * step), a.lines), source = k.offset(from, k.mul(a.stride, pass * step));
      for (int64_t i = 0; i < 4; i += n) {
        Value isColumn = k.less(k.add(k.add(at, column), i), k.i32Of(static_cast<int32_t>(a.width)));
        copyAsync(k, k.offset(to, pass * step * lineBytes + i * 4, k.b.getI8Type()), k.offset(source, i),
                  k.both(isLine, isColumn), 4 * n);
      }
    }
  };
  if (a.width % 4)
    return copy(1);
  k.when(k.aligned(a.data, a.stride), [&] { copy(4); }, [&] { copy(1); });
}

// Loads this block's half of each block of the weight. Beyond the weight's last block of columns, that one is loaded
// again: nobody reads those sums.
void WarpgroupTile::fetchWeight(Value column, Value at, const Turn &turn) {
  constexpr int64_t half = blockBytes / cluster;
  arriveExpecting(k, full(turn), weightBytes);
  const int64_t last = b.blocks[b.along ? 0 : 1] - 1;
  for (int64_t i = 0; i < columns / blockSide; ++i) {
    Value across = k.min(k.add(k.div(column, blockSide), i), k.i32Of(static_cast<int32_t>(last))),
          down = k.div(at, blockSide);
    Value number = b.along ? k.add(k.mul(across, b.blocks[1]), down) : k.add(k.mul(down, b.blocks[1]), across);
    Value from =
        k.offset(b.data, k.add(k.mul(k.i64Of(number), blockBytes), k.mul(k.i64Of(own), half)), k.b.getI8Type());
    copyToCluster(k, k.offset(weightOf(turn), k.add(k.mul(own, half), i * blockBytes), k.b.getI8Type()), from, half,
                  full(turn), cluster);
  }
}

// The fragments of the warp's 16 rows, for each 16 of k.
Values WarpgroupTile::fragments(const Turn &turn) {
  Value line = k.offset(rowsOf(turn), k.add(k.mul(threadRow, lineBytes), k.mul(threadColumn, 4)), k.b.getI8Type());
  Values all;
  for (int64_t at = 0; at < depth; at += 8)
    for (int64_t r = 0; r < 16; r += 8) {
      Values two = k.load(k.offset(line, r * lineBytes + at * 4, k.b.getI8Type()), 2);
      all.push_back(pairOfBF16(k, two[0], two[1]));
    }
  return all;
}

void WarpgroupTile::multiply(Value row, Value column, int64_t inner, const std::function<void(ArrayRef<Value>)> &use) {
  k.when(k.equal(k.thread(), k.i32Of(0)), [&] {
    for (int32_t stage = 0; stage < stages; ++stage) {
      const Turn turn{k.i32Of(stage), {}};
      initBarrier(k, full(turn), producers + 1);
      initBarrier(k, empty(turn), consumers / KernelBuilder::warpSize * cluster);
    }
    fenceBarriers(k);
  });
  clusterBarrier(k);
  k.when(
      k.less(k.thread(), k.i32Of(consumers)),
      [&] {
        setRegisters(k, Registers::Get, registersOfConsumers);
        use(eachTurn(inner, Values(columns / 2, k.scalar(0)), [&](Value, const Turn &turn, Values s) {
          waitForPhase(k, full(turn), turn.parity);
          s = multiplyWarpgroup(k, s, fragments(turn), {weightOf(turn), b.along, blockBytes});
          NVVM::SyncWarpOp::create(k.b, k.i32Of(-1));
          // One lane arrives for each block, predicated: the warps of a product must not diverge.
          arriveAt(k, empty(turn), k.rem(k.lane(), cluster), k.less(k.lane(), k.i32Of(cluster)));
          return s;
        }));
      },
      [&] {
        setRegisters(k, Registers::GiveUp, registersOfProducers);
        eachTurn(inner, {}, [&](Value at, const Turn &turn, Values s) {
          waitForPhase(k, empty(turn), k.bitXor(turn.parity, k.i32Of(1)));
          k.when(k.equal(k.thread(), k.i32Of(consumers)), [&] { fetchWeight(column, at, turn); });
          fetchRows(row, at, turn);
          arriveAfterCopies(k, full(turn));
          return s;
        });
      });
  clusterBarrier(k); // no block exits while the other still copies to it or arrives at its barriers
}

} // namespace xfc::gpu
