// Matrix products over rows: a micro-kernel of registers, panels of packed weights, tiles in scratch.
//
// An element of a result is one chain of fused multiply-adds over the inner dimension in ascending order, whatever the
// number of rows or how they are cut, so that a row's result never depends on its neighbours.
#include "Matrix.h"
#include "Emitters.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace xfc {
namespace {

// Sizes of a product on a target.
struct Tiling {
  int64_t rows;         // of the micro-kernel: 6 x 2 vectors fill 16 registers, 14 x 2 fill 32
  int64_t panel;        // columns of the micro-kernel
  int64_t block;        // rows of a chunk
  int64_t depth;        // inner dimension of a block
  int64_t stride;       // of a row in scratch: not a power of two, so that rows spread over the cache's sets
  // Panels come in groups of 64 columns, as dropout's random numbers do.
  static constexpr int64_t group = 64;

  Tiling(KernelBuilder &k, int64_t inner)
      : rows(k.registers() == 32 ? 14 : 6), panel(2 * k.lanes()), block(k.registers() == 32 ? 84 : 72),
        depth(std::min<int64_t>(inner, 512)), stride((depth + k.lanes() - 1) / k.lanes() * k.lanes() + 16) {}
  int64_t panels(int64_t n) const { return (n + panel - 1) / panel; }
  int64_t unit() const { return std::max<int64_t>(1, group / panel); } // panels of a group
};

//===--------------------------------------------------------------------------------------------------------===//
// The micro-kernel
//===--------------------------------------------------------------------------------------------------------===//

// Where element (row, k) of the left operand lies: row * row + k * step.
struct Layout {
  int64_t row, step;
};

// c[m][width x panel] (+)= a[m][0..depth) b[0..depth)[width x panel], panels of b `bStride` apart; one private function for
// each number of rows, width and layout. A wide one is for few rows, whose sums alone would wait for each other.
std::string microKernel(KernelBuilder &k, const Tiling &t, Layout layout, int64_t rows, int64_t width) {
  std::string name = llvm::formatv("product_{0}x{1}_{2}_{3}", rows, width * t.panel, layout.row, layout.step);
  k.helper(name, {k.ptr, k.ptr, k.i64, k.i64, k.ptr, k.i64, k.i1}, [&](ValueRange arguments) {
    Value a = arguments[0], b = arguments[1], bStride = arguments[2], depth = arguments[3], c = arguments[4], stride = arguments[5];
    const int64_t vectors = 2 * width;
    SmallVector<Value> cRows, panels;
    for (int64_t r = 0; r < rows; ++r)
      cRows.push_back(k.offset(c, k.mul(stride, r)));
    for (int64_t w = 0; w < width; ++w)
      panels.push_back(k.offset(b, k.mul(bStride, w)));
    auto at = [&](int64_t r, int64_t v) { return k.offset(cRows[r], v * k.lanes()); };
    Values sums = k.choose(
        arguments[6],
        [&] {
          Values old;
          for (int64_t i = 0; i < rows * vectors; ++i)
            old.push_back(k.load(at(i / vectors, i % vectors), k.lanes()));
          return old;
        },
        [&] { return Values(rows * vectors, k.splat(0)); });
    auto step = [&](Value from, int64_t unroll, Values state) {
      Value aAt = k.offset(a, k.mul(from, layout.step)), bAt = k.mul(from, t.panel);
      for (int64_t u = 0; u < unroll; ++u) {
        SmallVector<Value> right;
        for (int64_t v = 0; v < vectors; ++v)
          right.push_back(k.load(k.offset(k.offset(panels[v / 2], bAt), u * t.panel + v % 2 * k.lanes()), k.lanes()));
        for (int64_t r = 0; r < rows; ++r) {
          Value x = k.broadcast(k.load(k.offset(aAt, r * layout.row + u * layout.step)));
          for (int64_t v = 0; v < vectors; ++v)
            state[r * vectors + v] = k.fma(x, right[v], state[r * vectors + v]);
        }
      }
      return state;
    };
    Value whole = k.mul(k.div(depth, 4), 4);
    sums = k.loop(k.index(0), whole, 4, sums, [&](Value at, Values state) { return step(at, 4, state); });
    sums = k.loop(whole, depth, 1, sums, [&](Value at, Values state) { return step(at, 1, state); });
    for (int64_t i = 0; i < rows * vectors; ++i)
      k.store(sums[i], at(i / vectors, i % vectors));
  });
  return name;
}

// What is fetched while the micro-kernel works on a tile of its rows and a panel: memory's latency then hides behind it.
using Ahead = std::function<void(Value tile, int64_t panel)>;

// `panels` (static) panels of b, `bStride` apart, for `count` rows of a, `tileStride` apart from one micro-kernel's rows to
// the next's; c rows lie `cStride` apart.
void multiplyPanels(KernelBuilder &k, const Tiling &t, Layout layout, Value a, int64_t tileStride, Value b, Value bStride, int64_t panels,
                    Value depth, Value c, Value cStride, Value count, Value accumulate, const Ahead &ahead) {
  Value tiles = k.div(count, t.rows), whole = k.mul(tiles, t.rows), rest = k.sub(count, whole);
  auto call = [&](Value tile, int64_t rows, int64_t panel, int64_t width) {
    k.invoke(microKernel(k, t, layout, rows, width),
             {k.offset(a, k.mul(tile, tileStride)), k.offset(b, k.mul(bStride, panel)), bStride, depth,
              k.offset(c, k.add(k.mul(k.mul(tile, t.rows), cStride), panel * t.panel)), cStride, accumulate});
  };
  for (int64_t panel = 0; panel < panels; ++panel)
    k.loop(k.index(0), tiles, 1, [&](Value tile) {
      ahead(tile, panel);
      call(tile, t.rows, panel, 1);
    });
  for (int64_t rows = 1; rows < t.rows; ++rows)
    k.when(k.equal(rest, k.index(rows)), [&] {
      // As wide as sums, right operands and one left operand have registers; one row's right operands come from memory.
      int64_t most = 4;
      while (rows > 1 && most > 1 && (rows + 1) * 2 * most + 1 > k.registers())
        most /= 2;
      for (int64_t panel = 0; panel < panels;) {
        int64_t width = most;
        while (width > panels - panel)
          width /= 2;
        call(tiles, rows, panel, width);
        panel += width;
      }
    });
}

//===--------------------------------------------------------------------------------------------------------===//
// x W^T and dy W
//===--------------------------------------------------------------------------------------------------------===//

// A block of rows of x times panels of a packed weight, 64 columns after 64, through a tile in scratch. An inner dimension
// that is one block needs one group's tile, which stays in the first cache; else each group keeps its sums.
struct Product {
  KernelBuilder &k;
  Tiling t;
  int64_t inner, columns; // K and N
  int64_t groups;         // of a chunk, at most
  Value x, xStride, packed, a, c;

  Product(KernelBuilder &k, int64_t inner, int64_t columns, int64_t groups, int64_t block)
      : k(k), t(k, inner), inner(inner), columns(columns), groups(groups) {
    t.block = block;
    x = k.buffer(0);
    xStride = k.stride(0);
    packed = k.buffer(1);
    a = k.scratch;
    c = k.offset(a, t.block * t.stride);
  }
  int64_t tiles() const { return inner > t.depth ? groups : 1; }
  int64_t scratchBytes() const { return t.block * (t.stride + tiles() * t.group) * k.bytes(); }

  // Copies x[row .. row + count)[at .. at + depth).
  void copyRows(Value row, Value count, Value at, Value depth) {
    k.loop(k.index(0), count, 1, [&](Value r) {
      Value from = k.offset(k.offset(x, k.mul(k.add(row, r), xStride)), at), to = k.offset(a, k.mul(r, t.stride));
      k.loop(k.index(0), depth, k.lanes(), [&](Value i) { k.store(k.load(k.offset(from, i), k.lanes()), k.offset(to, i)); });
    });
  }

  // Fetches a share of x[row .. row + block)[at .. at + depth), for the tile's rows: the one with this number (`call`) of `calls`.
  void fetchRows(Value row, Value at, Value tile, Value call, int64_t calls) {
    const int64_t line = 64 / k.bytes(), lines = (t.depth + line - 1) / line, share = (lines + calls - 1) / calls;
    Value first = k.add(at, k.mul(call, share * line));
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t i = 0; i < share; ++i)
        k.prefetch(k.offset(k.offset(x, k.mul(k.add(row, k.add(k.mul(tile, t.rows), r)), xStride)), k.add(first, i * line)));
  }

  // What is done with a row's sums: the first feature, their place in the tile, and how many are used (static).
  using Finish = std::function<void(Value feature, Value tile, int64_t used)>;
  using Begin = std::function<Finish(Value row)>;
  // Fetches what is read and written at (row, feature) when a row's sums are finished.
  using Fetch = std::function<void(Value row, Value feature)>;

  // Rows `row` .. row + count - 1 times groups `group` .. end - 1 of columns; rows from `next` on follow in this thread. With
  // `copied`, the rows are in scratch already.
  void compute(Value row, Value count, Value group, Value end, Value next, const Begin &begin, const Fetch &fetch, bool copied = false) {
    const int64_t last = (inner - 1) / t.depth * t.depth;
    auto block = [&](Value at, Value depth, Value accumulate, bool finish) {
      if (!copied)
        copyRows(row, count, at, depth);
      Value nextRow = finish ? next : row, nextAt = finish ? k.index(0) : k.add(at, t.depth);
      k.loop(group, end, 1, [&](Value g) {
        Value tile = tiles() > 1 ? k.offset(c, k.mul(k.sub(g, group), t.block * t.group)) : c;
        auto columnsOfGroup = [&](int64_t used) {
          Value b = k.offset(packed, k.mul(k.add(k.mul(k.mul(g, t.unit()), inner), at), t.panel));
          Ahead ahead = [&](Value rows, int64_t panel) {
            if (finish)
              for (int64_t r = 0; r < t.rows; ++r)
                fetch(k.add(row, k.add(k.mul(rows, t.rows), r)), k.add(k.mul(g, t.group), panel * t.panel));
            fetchRows(nextRow, nextAt, rows, k.add(k.mul(k.sub(g, group), t.unit()), panel), groups * t.unit());
          };
          multiplyPanels(k, t, {t.stride, 1}, a, t.rows * t.stride, b, k.index(inner * t.panel), t.panels(used), depth, tile,
                         k.index(t.group), count, accumulate, ahead);
          if (finish)
            k.loop(k.index(0), count, 1,
                   [&](Value r) { begin(k.add(row, r))(k.mul(g, t.group), k.offset(tile, k.mul(r, t.group)), used); });
        };
        const int64_t tail = columns % t.group;
        if (columns < t.group)
          columnsOfGroup(columns);
        else if (!tail)
          columnsOfGroup(t.group);
        else
          k.when(
              k.less(g, k.index(columns / t.group)), [&] { columnsOfGroup(t.group); }, [&] { columnsOfGroup(tail); });
      });
    };
    if (last > 0)
      k.loop(k.index(0), k.index(last), t.depth, [&](Value at) { block(at, k.index(t.depth), k.less(k.index(0), at), false); });
    block(k.index(last), k.index(inner - last), k.boolean(last > 0), true);
  }
};

// Dropout of whole groups: outside training every random number is kept, and kept as it is.
struct Dropout {
  KernelBuilder &k;
  Value threshold, factor;

  Dropout(KernelBuilder &k, double rate) : k(k) {
    auto limit = static_cast<int32_t>(static_cast<uint32_t>(rate * 4294967296.0));
    Value training = k.training();
    threshold = k.broadcast(k.select(training, k.i32Of(limit), k.i32Of(0)));
    factor = k.broadcast(k.select(training, k.scalar(1 / (1 - rate)), k.scalar(1)));
  }
  KernelBuilder::DropoutKey key(Value row) {
    Value rows = k.rows(), sequence = k.loadI32(k.field(rows, offsetof(xfc_rows, sequence_of), k.ptr), row);
    return k.dropoutKey(k.immediate(0), k.loadI32(k.field(rows, offsetof(xfc_rows, positions), k.ptr), row),
                        k.loadI32(k.field(rows, offsetof(xfc_rows, sentences), k.ptr), sequence), k.index(0));
  }
  // 0 or the factor for up to 64 features from `feature` on, a vector each.
  SmallVector<Value> factors(const KernelBuilder::DropoutKey &key, Value feature, int64_t used) {
    SmallVector<Value> result((used + k.lanes() - 1) / k.lanes());
    for (int64_t i = 0; i < std::min<int64_t>(16, used); i += k.lanes()) {
      Value counters = k.add(k.broadcast(k.truncated(k.div(feature, 4))), k.add(k.iota(k.lanes()), k.broadcast(k.i32Of(i))));
      for (auto [word, numbers] : llvm::enumerate(k.philox(key, counters)))
        if (int64_t at = (static_cast<int64_t>(word) * 16 + i) / k.lanes(); at < static_cast<int64_t>(result.size()))
          result[at] = k.select(k.notLess(numbers, threshold), factor, k.splat(0));
    }
    return result;
  }
};

// The epilogue on one vector: `values` holds the region's arguments, and the yielded values are returned.
SmallVector<Value> evaluateEpilogue(KernelBuilder &k, Region &region, ArrayRef<Value> arguments, Value dropoutFactor) {
  llvm::DenseMap<Value, Value> values;
  for (auto [argument, value] : llvm::zip_equal(region.front().getArguments(), arguments))
    values[argument] = value;
  for (Operation &op : region.front()) {
    auto operand = [&](unsigned i) { return values.lookup(op.getOperand(i)); };
    if (isa<YieldOp>(op)) {
      SmallVector<Value> yielded;
      for (Value value : op.getOperands())
        yielded.push_back(values.lookup(value));
      return yielded;
    }
    Value result;
    if (isa<AddOp>(op))
      result = k.addf(operand(0), operand(1));
    else if (isa<MultiplyOp>(op))
      result = k.mulf(operand(0), operand(1));
    else if (auto activation = dyn_cast<ActivationOp>(op))
      result = emitActivationVector(k, activation.getKind(), operand(0));
    else if (auto grad = dyn_cast<ActivationGradOp>(op))
      result = emitActivationGradVector(k, grad.getKind(), operand(0), operand(1));
    else
      result = k.mulf(operand(0), dropoutFactor);
    values[op.getResult(0)] = result;
  }
  llvm_unreachable("the verifier wants a yield");
}

Backend::KernelInfo emitProduct(KernelBuilder &k, Operation *op, int64_t inner, int64_t columns, bool hasBias, Region &epilogue) {
  const int64_t all = (columns + Tiling::group - 1) / Tiling::group;
  // At least two chunks a block of rows where there are columns for it, so that a few rows keep two threads busy.
  const int64_t groups = std::clamp<int64_t>((all + 1) / 2, 1, 4), slabs = (all + groups - 1) / groups;
  Product product(k, inner, columns, groups, Tiling(k, inner).block);
  const Tiling &t = product.t;

  const int64_t firstExtra = hasBias ? 3 : 2, extras = op->getNumOperands() - firstExtra;
  double rate = 0;
  if (!epilogue.empty())
    for (auto dropout : epilogue.getOps<DropoutOp>())
      rate = dropout.getRate().convertToDouble();

  Value slab = k.rem(k.chunk, slabs), row = k.mul(k.div(k.chunk, slabs), t.block);
  Value count = k.min(k.index(t.block), k.sub(k.rowCount(), row));
  Value group = k.mul(slab, groups), end = k.min(k.index(all), k.add(group, groups));
  Value bias = hasBias ? k.buffer(2) : Value();
  std::optional<Dropout> dropout;
  if (rate > 0)
    dropout.emplace(k, rate);
  // The next slab has the same rows.
  Value next = k.select(k.equal(slab, k.index(slabs - 1)), k.add(row, t.block), row);
  auto rowOf = [&](int64_t buffer, Value at) { return k.offset(k.buffer(buffer), k.mul(at, k.stride(buffer))); };
  Product::Fetch fetch = [&](Value at, Value feature) {
    for (int64_t e = 0; e < extras; ++e)
      k.prefetch(k.offset(rowOf(firstExtra + e, at), feature));
    for (OpResult result : op->getResults())
      if (!result.use_empty())
        k.prefetchForWriting(k.offset(rowOf(op->getNumOperands() + result.getResultNumber(), at), feature));
  };
  Product::Begin begin = [&](Value at) -> Product::Finish {
    SmallVector<Value> inputs, outputs;
    for (int64_t e = 0; e < extras; ++e)
      inputs.push_back(rowOf(firstExtra + e, at));
    for (OpResult result : op->getResults())
      outputs.push_back(result.use_empty() ? Value() : rowOf(op->getNumOperands() + result.getResultNumber(), at));
    std::optional<KernelBuilder::DropoutKey> key;
    if (dropout)
      key = dropout->key(at);
    return [=, &k, &epilogue, &dropout](Value feature, Value tile, int64_t used) {
      SmallVector<Value> factors;
      if (key)
        factors = dropout->factors(*key, feature, used);
      for (int64_t i = 0; i < used; i += k.lanes()) {
        Value y = k.load(k.offset(tile, i), k.lanes());
        if (bias)
          y = k.addf(y, k.load(k.offset(k.offset(bias, feature), i), k.lanes()));
        SmallVector<Value> results = {y};
        if (!epilogue.empty()) {
          SmallVector<Value> arguments = {y};
          for (Value input : inputs)
            arguments.push_back(k.load(k.offset(k.offset(input, feature), i), k.lanes()));
          results = evaluateEpilogue(k, epilogue, arguments, key ? factors[i / k.lanes()] : Value());
        }
        for (auto [output, result] : llvm::zip_equal(outputs, results))
          if (output)
            k.storePart(result, k.offset(k.offset(output, feature), i), std::min(k.lanes(), used - i));
      }
    };
  };
  product.compute(row, count, group, end, next, begin, fetch);
  return {{Partition::Unit::Rows, t.block, slabs}, product.scratchBytes()};
}

} // namespace

Backend::KernelInfo emitLinear(KernelBuilder &k, LinearOp op) {
  RankedTensorType weight = op.getWeight().getType();
  return emitProduct(k, op, weight.getDimSize(1), weight.getDimSize(0), static_cast<bool>(op.getBias()), op.getEpilogue());
}

Backend::KernelInfo emitLinearInputGrad(KernelBuilder &k, LinearInputGradOp op) {
  RankedTensorType weight = op.getWeight().getType();
  return emitProduct(k, op, weight.getDimSize(0), weight.getDimSize(1), false, op.getEpilogue());
}

namespace {

// The logits of a block of rows, then their losses while they are in cache, and their gradient in their place where `dloss`
// is given. The loss needs all of a row's logits at once: where they are not `kept`, they stay in scratch.
template <typename Op>
Backend::KernelInfo emitLinearLoss(KernelBuilder &k, Op op, Value wide, bool kept, ArrayRef<std::pair<Value, Value RowLoss::*>> numbers, Value dloss) {
  RankedTensorType weight = op.getWeight().getType();
  const int64_t inner = weight.getDimSize(1), vocabulary = weight.getDimSize(0), labels = op.getBias() ? 3 : 2;
  const int64_t all = (vocabulary + Tiling::group - 1) / Tiling::group, block = Tiling(k, inner).block;
  auto bufferOf = [&](Value result) { return op->getNumOperands() + cast<OpResult>(result).getResultNumber(); };
  Product product(k, inner, vocabulary, 4, block);
  Value row = k.mul(k.chunk, block), count = k.min(k.index(block), k.sub(k.rowCount(), row));
  Value bias = op.getBias() ? k.buffer(2) : Value();
  Value stride = kept ? k.stride(bufferOf(wide)) : k.index(vocabulary);
  Value logits = kept ? k.offset(k.buffer(bufferOf(wide)), k.mul(row, stride)) : k.offset(k.scratch, product.scratchBytes() / k.bytes());
  const bool copied = product.tiles() == 1;
  if (copied)
    product.copyRows(row, count, k.index(0), k.index(inner));
  Product::Begin store = [&](Value at) -> Product::Finish {
    Value to = k.offset(logits, k.mul(k.sub(at, row), stride));
    return [=, &k](Value feature, Value tile, int64_t used) {
      for (int64_t i = 0; i < used; i += k.lanes()) {
        Value y = k.load(k.offset(tile, i), k.lanes());
        if (bias)
          y = k.addf(y, k.load(k.offset(k.offset(bias, feature), i), k.lanes()));
        k.storePart(y, k.offset(k.offset(to, feature), i), std::min(k.lanes(), used - i));
      }
    };
  };
  Product::Fetch fetch = [&](Value at, Value feature) {
    if (kept)
      k.prefetchForWriting(k.offset(k.offset(logits, k.mul(k.sub(at, row), stride)), feature));
  };
  k.loop(k.index(0), k.index(all), product.groups, [&](Value group) {
    product.compute(row, count, group, k.min(k.index(all), k.add(group, product.groups)), row, store, fetch, copied);
  });
  Value smoothing = k.load(k.buffer(labels + 1));
  k.loop(k.index(0), count, 1, [&](Value r) {
    Value at = k.add(row, r), label = k.loadI32(k.buffer(labels), at), from = k.offset(logits, k.mul(r, stride));
    RowLoss values = emitCrossEntropyRow(k, from, vocabulary, label, smoothing);
    for (auto [result, value] : numbers)
      if (!result.use_empty())
        k.store(values.*value, k.offset(k.buffer(bufferOf(result)), k.mul(at, k.stride(bufferOf(result)))));
    if (dloss)
      emitCrossEntropyGradRow(k, from, from, vocabulary, label, smoothing, values.lse,
                              k.load(k.offset(k.buffer(labels + 2), k.mul(at, k.stride(labels + 2)))));
  });
  return {{Partition::Unit::Rows, block, 1}, product.scratchBytes() + (kept ? 0 : block * vocabulary * k.bytes())};
}

} // namespace

Backend::KernelInfo emitLinearCrossEntropy(KernelBuilder &k, LinearCrossEntropyOp op) {
  return emitLinearLoss(k, op, op.getLogits(), !op.getLogits().use_empty(),
                        {{op.getLoss(), &RowLoss::loss}, {op.getNll(), &RowLoss::nll}, {op.getLse(), &RowLoss::lse}}, {});
}

Backend::KernelInfo emitLinearCrossEntropyWithGrad(KernelBuilder &k, LinearCrossEntropyWithGradOp op) {
  return emitLinearLoss(k, op, op.getDlogits(), !op.getDlogits().use_empty(), {{op.getLoss(), &RowLoss::loss}, {op.getNll(), &RowLoss::nll}},
                        op.getDloss());
}

//===--------------------------------------------------------------------------------------------------------===//
// Gradients of parameters
//===--------------------------------------------------------------------------------------------------------===//

// A chunk owns a tile of dW and takes the rows in blocks, in order: dy of the block in columns of the micro-kernel's rows, x
// in panels. Those of the first columns own db too.
Backend::KernelInfo emitLinearWeightGrad(KernelBuilder &k, LinearWeightGradOp op) {
  constexpr int64_t depth = 256; // rows a block
  const Tiling t(k, depth);
  RankedTensorType type = op.getDweight().getType();
  const int64_t out = type.getDimSize(0), in = type.getDimSize(1), lanes = k.lanes();
  auto upTo = [](int64_t n, int64_t unit) { return (n + unit - 1) / unit; };
  const int64_t tilePanels = std::min(t.panels(in), 256 / t.panel), tileColumns = tilePanels * t.panel, columnTiles = upTo(in, tileColumns);
  // High tiles, since each copies x, but enough of them for some threads; of like heights, so that threads get like work.
  const int64_t most = upTo(out, 2 * t.block) * columnTiles < 4 ? t.block : 2 * t.block;
  const int64_t rowTiles = upTo(out, most), height = upTo(upTo(out, rowTiles), t.rows) * t.rows, tiles = height / t.rows;
  // A column of dy: `depth` times the micro-kernel's rows, in whole vectors that overlap, and what the last one has over.
  const int64_t vectors = upTo(t.rows, lanes), tileStride = depth * t.rows + vectors * lanes;
  // Whole panels are summed where they belong; else in scratch, and copied.
  const bool inPlace = in % t.panel == 0 && !op.getDweight().use_empty();

  Value dy = k.buffer(0), x = k.buffer(1), dyStride = k.stride(0), xStride = k.stride(1), rows = k.rowCount();
  Value o0 = k.mul(k.div(k.chunk, columnTiles), height), i0 = k.mul(k.rem(k.chunk, columnTiles), tileColumns);
  Value outputs = k.min(k.index(height), k.sub(k.index(out), o0)), inputs = k.min(k.index(tileColumns), k.sub(k.index(in), i0));
  Value panels = k.div(k.add(inputs, t.panel - 1), t.panel), usedTiles = k.div(k.add(outputs, t.rows - 1), t.rows);
  Value dw = op.getDweight().use_empty() ? Value() : k.offset(k.offset(k.buffer(2), k.mul(o0, in)), i0);
  // Tiles of dy go in pairs where they are summed: one may be over.
  // A panel of x: a line more than a power of two, so that a row's panels spread over the cache's sets.
  const int64_t panelStride = (depth + 1) * t.panel;
  Value a = k.scratch, b = k.offset(a, tiles * tileStride), sums = k.offset(b, tilePanels * panelStride);
  const int64_t sumsSize = (tiles + 1) * vectors * lanes;
  Value c = inPlace ? dw : k.offset(sums, sumsSize), cStride = k.index(inPlace ? in : tileColumns);
  auto whenBias = [&](const std::function<void()> &body) {
    if (op.getDbias() && !op.getDbias().use_empty())
      k.when(k.equal(i0, k.index(0)), body);
  };

  whenBias([&] { k.loop(k.index(0), k.index(sumsSize), lanes, [&](Value i) { k.store(k.splat(0), k.offset(sums, i)); }); });
  k.when(k.equal(rows, k.index(0)), [&] {
    k.loop(k.index(0), outputs, 1, [&](Value o) {
      k.loop(k.index(0), k.mul(panels, t.panel), lanes, [&](Value i) { k.store(k.splat(0), k.offset(k.offset(c, k.mul(o, cStride)), i)); });
    });
  });
  k.loop(k.index(0), rows, depth, [&](Value row) {
    Value count = k.min(k.index(depth), k.sub(rows, row));
    k.loop(k.index(0), count, 1, [&](Value r) {
      Value from = k.offset(k.offset(dy, k.mul(k.add(row, r), dyStride)), o0), to = k.offset(a, k.mul(r, t.rows));
      k.loop(k.index(0), usedTiles, 1, [&](Value tile) {
        Value source = k.offset(from, k.mul(tile, t.rows)), target = k.offset(to, k.mul(tile, tileStride));
        for (int64_t v = 0; v < vectors; ++v)
          k.store(k.load(k.offset(source, v * lanes), lanes), k.offset(target, v * lanes));
      });
    });
    whenBias([&] {
      k.loop(k.index(0), usedTiles, 2, [&](Value tile) {
        SmallVector<Value> from, to;
        Values state;
        for (int64_t i = 0; i < 2 * vectors; ++i) {
          Value at = k.add(tile, i / vectors);
          from.push_back(k.offset(k.offset(a, k.mul(at, tileStride)), i % vectors * lanes));
          to.push_back(k.offset(sums, k.add(k.mul(at, vectors * lanes), i % vectors * lanes)));
          state.push_back(k.load(to.back(), lanes));
        }
        state = k.loop(k.index(0), count, 1, state, [&](Value r, Values sum) {
          for (size_t i = 0; i < sum.size(); ++i)
            sum[i] = k.addf(sum[i], k.load(k.offset(from[i], k.mul(r, t.rows)), lanes));
          return sum;
        });
        for (size_t i = 0; i < state.size(); ++i)
          k.store(state[i], to[i]);
      });
    });
    k.loop(k.index(0), count, 1, [&](Value r) {
      Value from = k.offset(k.offset(x, k.mul(k.add(row, r), xStride)), i0);
      k.loop(k.index(0), panels, 1, [&](Value p) {
        Value source = k.offset(from, k.mul(p, t.panel)), to = k.offset(b, k.add(k.mul(p, panelStride), k.mul(r, t.panel)));
        for (int64_t v = 0; v < 2; ++v)
          k.store(k.load(k.offset(source, v * lanes), lanes), k.offset(to, v * lanes));
      });
    });
    Value accumulate = k.less(k.index(0), row);
    k.loop(k.index(0), panels, 1, [&](Value p) {
      // Meanwhile the next block of rows is fetched, some for each of the block's calls.
      Ahead ahead = [&](Value tile, int64_t) {
        const int64_t share = upTo(depth, tiles * tilePanels), line = 64 / k.bytes();
        for (int64_t i = 0; i < share; ++i) {
          Value next = k.add(k.add(row, depth + i), k.mul(k.add(k.mul(p, tiles), tile), share));
          for (int64_t at = 0; at < height; at += line)
            k.prefetch(k.offset(k.offset(dy, k.mul(next, dyStride)), k.add(o0, at)));
          for (int64_t at = 0; at < tileColumns; at += line)
            k.prefetch(k.offset(k.offset(x, k.mul(next, xStride)), k.add(i0, at)));
        }
      };
      multiplyPanels(k, t, {1, t.rows}, a, tileStride, k.offset(b, k.mul(p, panelStride)), k.index(0), 1, count,
                     k.offset(c, k.mul(p, t.panel)), cStride, outputs, accumulate, ahead);
    });
  });
  if (dw && !inPlace)
    k.loop(k.index(0), outputs, 1, [&](Value o) {
      Value from = k.offset(c, k.mul(o, tileColumns)), to = k.offset(dw, k.mul(o, in));
      k.loop(k.index(0), inputs, lanes, [&](Value i) {
        k.storeMasked(k.load(k.offset(from, i), lanes), k.offset(to, i), k.lanesBelow(i, inputs));
      });
    });
  // What a tile's last vector has over is written again by the next tile.
  whenBias([&] {
    k.loop(k.index(0), usedTiles, 1, [&](Value tile) {
      for (int64_t v = 0; v < vectors; ++v) {
        Value at = k.add(k.mul(tile, t.rows), v * lanes);
        k.storeMasked(k.load(k.offset(sums, k.add(k.mul(tile, vectors * lanes), v * lanes)), lanes),
                      k.offset(k.offset(k.buffer(3), o0), at), k.lanesBelow(at, outputs));
      }
    });
  });
  const int64_t scratch = tiles * tileStride + tilePanels * panelStride + sumsSize + (inPlace ? 0 : height * tileColumns);
  return {{Partition::Unit::One, 1, rowTiles * columnTiles}, scratch * k.bytes()};
}

//===--------------------------------------------------------------------------------------------------------===//
// Packing
//===--------------------------------------------------------------------------------------------------------===//

Backend::PackInfo emitPackWeight(KernelBuilder &k, RankedTensorType weight, bool transposed) {
  const int64_t lanes = k.lanes(), columns = weight.getDimSize(1);
  const int64_t inner = transposed ? columns : weight.getDimSize(0), outer = transposed ? weight.getDimSize(0) : columns;
  const Tiling t(k, inner);
  const int64_t panels = t.panels(outer), tail = outer % t.panel;
  Value from = k.buffer(0), to = k.offset(k.buffer(1), k.mul(k.chunk, inner * t.panel)), first = k.mul(k.chunk, t.panel);

  // `used` columns of the panel are real.
  auto transposedPanel = [&](int64_t used) {
    for (int64_t v = 0; v < 2; ++v) {
      auto tiles = [&](Value i, int64_t count) {
        SmallVector<Value> tile;
        for (int64_t j = 0; j < lanes; ++j) {
          int64_t column = v * lanes + j;
          tile.push_back(column < used ? k.load(k.offset(k.offset(from, k.mul(k.add(first, column), columns)), i), lanes) : k.splat(0));
        }
        k.transpose(tile);
        for (int64_t j = 0; j < count; ++j)
          k.store(tile[j], k.offset(k.offset(to, k.mul(k.add(i, j), t.panel)), v * lanes));
      };
      k.features(inner, tiles);
    }
  };
  auto plainPanel = [&](int64_t used) {
    k.loop(k.index(0), k.index(inner), 1, [&](Value i) {
      Value row = k.offset(k.offset(from, k.mul(i, columns)), first);
      for (int64_t v = 0; v < 2; ++v) {
        int64_t real = std::clamp<int64_t>(used - v * lanes, 0, lanes);
        Value values = real ? k.loadPart(k.offset(row, v * lanes), real) : k.splat(0);
        k.store(values, k.offset(k.offset(to, k.mul(i, t.panel)), v * lanes));
      }
    });
  };
  auto pack = [&](int64_t used) { transposed ? transposedPanel(used) : plainPanel(used); };
  if (!tail)
    pack(t.panel);
  else if (panels == 1)
    pack(tail);
  else
    k.when(k.less(k.chunk, k.index(panels - 1)), [&] { pack(t.panel); }, [&] { pack(tail); });
  return {panels * inner * t.panel * k.bytes(), panels};
}

} // namespace xfc
