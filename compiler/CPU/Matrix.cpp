// Matrix products over rows: a micro-kernel of registers, panels of packed weights, tiles in scratch.
//
// An element of a result is one chain of fused multiply-adds over the inner dimension in ascending order, whatever the
// number of rows or how they are cut, so that a row's result never depends on its neighbours.
#include "Matrix.h"
#include "Emitters.h"

using namespace mlir;

namespace xfc {
namespace {

// Sizes of a product on a target. Columns of a chunk are a multiple of 64 where dropout's random numbers come in 64s.
struct Tiling {
  int64_t rows;       // of the micro-kernel: 6 x 2 vectors fill 16 registers, 14 x 2 fill 32
  int64_t panel;      // columns of the micro-kernel
  int64_t block;      // rows of a chunk
  int64_t depth = 512; // inner dimension of a block
  int64_t stride = depth + 16; // of a row in scratch: not a power of two, so that rows spread over the cache's sets

  explicit Tiling(KernelBuilder &k)
      : rows(k.registers() == 32 ? 14 : 6), panel(2 * k.lanes()), block(k.registers() == 32 ? 84 : 72) {}
  int64_t panels(int64_t n) const { return (n + panel - 1) / panel; }
};

//===--------------------------------------------------------------------------------------------------------===//
// The micro-kernel
//===--------------------------------------------------------------------------------------------------------===//

// c[m][panel] (+)= a[m][0..depth) b[0..depth)[panel]; one private function for each number of rows.
std::string microKernel(KernelBuilder &k, const Tiling &t, int64_t rows) {
  std::string name = "product_" + std::to_string(rows) + "x" + std::to_string(t.panel);
  k.helper(name, {k.ptr, k.ptr, k.i64, k.ptr, k.i64, k.i1}, [&](ValueRange arguments) {
    Value a = arguments[0], b = arguments[1], depth = arguments[2], c = arguments[3], stride = arguments[4], accumulate = arguments[5];
    SmallVector<Value> cRows;
    Values sums;
    for (int64_t r = 0; r < rows; ++r) {
      cRows.push_back(k.offset(c, k.mul(stride, r)));
      for (int64_t v = 0; v < 2; ++v)
        sums.push_back(k.select(accumulate, k.load(k.offset(cRows[r], v * k.lanes()), k.lanes()), k.splat(0)));
    }
    auto step = [&](Value at, int64_t unroll, Values state) {
      Value aAt = k.offset(a, at), bAt = k.offset(b, k.mul(at, t.panel));
      for (int64_t u = 0; u < unroll; ++u) {
        Value b0 = k.load(k.offset(bAt, u * t.panel), k.lanes()), b1 = k.load(k.offset(bAt, u * t.panel + k.lanes()), k.lanes());
        for (int64_t r = 0; r < rows; ++r) {
          Value x = k.broadcast(k.load(k.offset(aAt, r * t.stride + u)));
          state[2 * r] = k.fma(x, b0, state[2 * r]);
          state[2 * r + 1] = k.fma(x, b1, state[2 * r + 1]);
        }
      }
      return state;
    };
    Value whole = k.mul(k.div(depth, 4), 4);
    sums = k.loop(k.index(0), whole, 4, sums, [&](Value at, Values state) { return step(at, 4, state); });
    sums = k.loop(whole, depth, 1, sums, [&](Value at, Values state) { return step(at, 1, state); });
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t v = 0; v < 2; ++v)
        k.store(sums[2 * r + v], k.offset(cRows[r], v * k.lanes()));
  });
  return name;
}

// One panel for `count` rows of a: c rows lie `cStride` apart, a rows t.stride.
void multiplyPanel(KernelBuilder &k, const Tiling &t, Value a, Value b, Value depth, Value c, Value cStride, Value count, Value accumulate) {
  auto call = [&](Value from, int64_t rows) {
    k.invoke(microKernel(k, t, rows),
             {k.offset(a, k.mul(from, t.stride)), b, depth, k.offset(c, k.mul(from, cStride)), cStride, accumulate});
  };
  Value whole = k.mul(k.div(count, t.rows), t.rows), rest = k.sub(count, whole);
  k.loop(k.index(0), whole, t.rows, [&](Value from) { call(from, t.rows); });
  for (int64_t rows = 1; rows < t.rows; ++rows)
    k.when(k.equal(rest, k.index(rows)), [&] { call(whole, rows); });
}

//===--------------------------------------------------------------------------------------------------------===//
// x W^T and dy W
//===--------------------------------------------------------------------------------------------------------===//

// A block of rows of x times panels of a packed weight, into a tile in scratch.
struct Product {
  KernelBuilder &k;
  Tiling t;
  int64_t inner, columns; // K and N
  int64_t tilePanels;
  Value x, xStride, packed, a, c;

  Product(KernelBuilder &k, int64_t inner, int64_t columns, int64_t tilePanels, int64_t block)
      : k(k), t(k), inner(inner), columns(columns), tilePanels(tilePanels) {
    t.block = block;
    x = k.buffer(0);
    xStride = k.stride(0);
    packed = k.buffer(1);
    a = k.scratch;
    c = k.offset(a, t.block * t.stride);
  }
  int64_t tileColumns() const { return tilePanels * t.panel; }
  int64_t scratchBytes() const { return t.block * (t.stride + tileColumns()) * k.bytes(); }

  // Rows `row` .. row + count - 1, panels `panel` .. panel + panels - 1.
  void compute(Value row, Value count, Value panel, Value panels) {
    Value end = k.index(inner), cStride = k.index(tileColumns());
    k.loop(k.index(0), end, t.depth, [&](Value at) {
      Value depth = k.min(k.index(t.depth), k.sub(end, at));
      k.loop(k.index(0), count, 1, [&](Value r) {
        Value from = k.offset(k.offset(x, k.mul(k.add(row, r), xStride)), at), to = k.offset(a, k.mul(r, t.stride));
        k.loop(k.index(0), depth, k.lanes(), [&](Value i) { k.store(k.load(k.offset(from, i), k.lanes()), k.offset(to, i)); });
      });
      Value accumulate = k.less(k.index(0), at);
      k.loop(k.index(0), panels, 1, [&](Value p) {
        Value b = k.offset(packed, k.mul(k.add(k.mul(k.add(panel, p), inner), at), t.panel));
        multiplyPanel(k, t, a, b, depth, k.offset(c, k.mul(p, t.panel)), cStride, count, accumulate);
      });
    });
  }

  // For each row of the tile, what `begin(row)` returns is called with each group of 64 columns: the first feature, its
  // place in the tile, and how many are used (static). What depends on the row alone is computed once, in `begin`.
  using Finish = std::function<void(Value feature, Value tile, int64_t used)>;
  void forEachGroup(Value row, Value count, Value panel, Value panels, const std::function<Finish(Value row)> &begin) {
    Value first = k.mul(panel, t.panel), end = k.min(k.index(columns), k.mul(k.add(panel, panels), t.panel));
    const int64_t tail = columns % 64;
    k.loop(k.index(0), count, 1, [&](Value r) {
      Value tile = k.offset(c, k.mul(r, tileColumns()));
      Finish finish = begin(k.add(row, r));
      k.loop(first, end, 64, [&](Value feature) {
        Value group = k.offset(tile, k.sub(feature, first));
        if (columns < 64)
          finish(feature, group, columns);
        else if (!tail)
          finish(feature, group, 64);
        else
          k.when(
              k.less(k.add(feature, 63), k.index(columns)), [&] { finish(feature, group, 64); },
              [&] { finish(feature, group, tail); });
      });
    });
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
  Tiling t(k);
  const int64_t panels = t.panels(columns), unit = std::max<int64_t>(1, 64 / t.panel);
  // At least two chunks a block of rows where there are columns for it, so that a few rows keep two threads busy.
  const int64_t tilePanels = unit * std::clamp<int64_t>((panels + 2 * unit - 1) / (2 * unit), 1, 4);
  const int64_t slabs = (panels + tilePanels - 1) / tilePanels;
  Product product(k, inner, columns, tilePanels, t.block);

  const int64_t firstExtra = hasBias ? 3 : 2, extras = op->getNumOperands() - firstExtra;
  double rate = 0;
  if (!epilogue.empty())
    for (auto dropout : epilogue.getOps<DropoutOp>())
      rate = dropout.getRate().convertToDouble();

  Value slab = k.rem(k.chunk, slabs), row = k.mul(k.div(k.chunk, slabs), t.block);
  Value count = k.min(k.index(t.block), k.sub(k.rowCount(), row));
  Value panel = k.mul(slab, tilePanels), some = k.min(k.index(tilePanels), k.sub(k.index(panels), panel));
  product.compute(row, count, panel, some);

  Value bias = hasBias ? k.buffer(2) : Value();
  std::optional<Dropout> dropout;
  if (rate > 0)
    dropout.emplace(k, rate);
  product.forEachGroup(row, count, panel, some, [&](Value at) -> Product::Finish {
    auto rowOf = [&](int64_t buffer) { return k.offset(k.buffer(buffer), k.mul(at, k.stride(buffer))); };
    SmallVector<Value> inputs, outputs;
    for (int64_t e = 0; e < extras; ++e)
      inputs.push_back(rowOf(firstExtra + e));
    for (OpResult result : op->getResults())
      outputs.push_back(result.use_empty() ? Value() : rowOf(op->getNumOperands() + result.getResultNumber()));
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
  });
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

// The logits of a block of rows, then their losses while they are in cache. The loss needs all of a row's logits at
// once: without a gradient to take their place they stay in scratch.
Backend::KernelInfo emitLinearCrossEntropy(KernelBuilder &k, LinearCrossEntropyOp op) {
  RankedTensorType weight = op.getWeight().getType();
  const int64_t inner = weight.getDimSize(1), vocabulary = weight.getDimSize(0), labels = op.getBias() ? 3 : 2;
  Tiling t(k);
  const int64_t panels = t.panels(vocabulary), tilePanels = std::max<int64_t>(1, 256 / t.panel), block = k.registers() == 32 ? 56 : 48;
  Product product(k, inner, vocabulary, tilePanels, block);
  Value row = k.mul(k.chunk, block), count = k.min(k.index(block), k.sub(k.rowCount(), row));
  Value bias = op.getBias() ? k.buffer(2) : Value();
  const int64_t firstResult = op->getNumOperands();
  const bool kept = !op.getLogits().use_empty();
  Value stride = kept ? k.stride(firstResult + 2) : k.index(vocabulary);
  Value logits = kept ? k.offset(k.buffer(firstResult + 2), k.mul(row, stride)) : k.offset(k.scratch, product.scratchBytes() / k.bytes());
  k.loop(k.index(0), k.index(panels), tilePanels, [&](Value panel) {
    Value some = k.min(k.index(tilePanels), k.sub(k.index(panels), panel));
    product.compute(row, count, panel, some);
    product.forEachGroup(row, count, panel, some, [&](Value at) -> Product::Finish {
      Value to = k.offset(logits, k.mul(k.sub(at, row), stride));
      return [=, &k](Value feature, Value tile, int64_t used) {
        for (int64_t i = 0; i < used; i += k.lanes()) {
          Value y = k.load(k.offset(tile, i), k.lanes());
          if (bias)
            y = k.addf(y, k.load(k.offset(k.offset(bias, feature), i), k.lanes()));
          k.storePart(y, k.offset(k.offset(to, feature), i), std::min(k.lanes(), used - i));
        }
      };
    });
  });
  Value smoothing = k.load(k.buffer(labels + 1));
  k.loop(k.index(0), count, 1, [&](Value r) {
    Value at = k.add(row, r), label = k.loadI32(k.buffer(labels), at);
    RowLoss values = emitCrossEntropyRow(k, k.offset(logits, k.mul(r, stride)), vocabulary, label, smoothing);
    const std::pair<Value, Value> results[] = {{op.getLoss(), values.loss}, {op.getNll(), values.nll}, {op.getLse(), values.lse}};
    for (auto [result, value] : results) {
      int64_t buffer = firstResult + cast<OpResult>(result).getResultNumber();
      if (!result.use_empty())
        k.store(value, k.offset(k.buffer(buffer), k.mul(at, k.stride(buffer))));
    }
  });
  return {{Partition::Unit::Rows, block, 1}, product.scratchBytes() + (kept ? 0 : block * vocabulary * k.bytes())};
}

//===--------------------------------------------------------------------------------------------------------===//
// Gradients of parameters
//===--------------------------------------------------------------------------------------------------------===//

// A chunk owns a tile of dW and takes the rows in blocks, in order: dy of the block transposed, x in panels.
Backend::KernelInfo emitLinearWeightGrad(KernelBuilder &k, LinearWeightGradOp op) {
  Tiling t(k);
  const int64_t out = op.getType().getDimSize(0), in = op.getType().getDimSize(1), lanes = k.lanes();
  constexpr int64_t depth = 256; // rows a block
  const int64_t tilePanels = std::min(t.panels(in), 512 / t.panel), tileColumns = tilePanels * t.panel;
  const int64_t columnTiles = (in + tileColumns - 1) / tileColumns, rowTiles = (out + t.block - 1) / t.block;
  const int64_t aRows = (t.block + lanes - 1) / lanes * lanes;

  Value dy = k.buffer(0), x = k.buffer(1), dw = k.buffer(2), dyStride = k.stride(0), xStride = k.stride(1), rows = k.rowCount();
  Value a = k.scratch, b = k.offset(a, aRows * t.stride), c = k.offset(b, depth * tileColumns);
  Value o0 = k.mul(k.div(k.chunk, columnTiles), t.block), i0 = k.mul(k.rem(k.chunk, columnTiles), tileColumns);
  Value outputs = k.min(k.index(t.block), k.sub(k.index(out), o0)), inputs = k.min(k.index(tileColumns), k.sub(k.index(in), i0));
  Value panels = k.div(k.add(inputs, t.panel - 1), t.panel), cStride = k.index(tileColumns);

  k.when(k.equal(rows, k.index(0)), [&] {
    k.loop(k.index(0), k.index(t.block * tileColumns), lanes, [&](Value i) { k.store(k.splat(0), k.offset(c, i)); });
  });
  k.loop(k.index(0), rows, depth, [&](Value row) {
    Value count = k.min(k.index(depth), k.sub(rows, row)), last = k.sub(rows, k.index(1));
    k.loop(k.index(0), count, lanes, [&](Value r) {
      SmallVector<Value> from;
      for (int64_t j = 0; j < lanes; ++j)
        from.push_back(k.offset(k.offset(dy, k.mul(k.min(k.add(k.add(row, r), j), last), dyStride)), o0));
      k.loop(k.index(0), outputs, lanes, [&](Value o) {
        SmallVector<Value> tile;
        for (Value source : from)
          tile.push_back(k.load(k.offset(source, o), lanes));
        k.transpose(tile);
        for (int64_t j = 0; j < lanes; ++j)
          k.store(tile[j], k.offset(k.offset(a, k.mul(k.add(o, j), t.stride)), r));
      });
    });
    k.loop(k.index(0), count, 1, [&](Value r) {
      Value from = k.offset(k.offset(x, k.mul(k.add(row, r), xStride)), i0);
      k.loop(k.index(0), panels, 1, [&](Value p) {
        Value source = k.offset(from, k.mul(p, t.panel)), to = k.offset(b, k.mul(k.add(k.mul(p, depth), r), t.panel));
        for (int64_t v = 0; v < 2; ++v)
          k.store(k.load(k.offset(source, v * lanes), lanes), k.offset(to, v * lanes));
      });
    });
    Value accumulate = k.less(k.index(0), row);
    k.loop(k.index(0), panels, 1, [&](Value p) {
      multiplyPanel(k, t, a, k.offset(b, k.mul(p, depth * t.panel)), count, k.offset(c, k.mul(p, t.panel)), cStride, outputs, accumulate);
    });
  });
  k.loop(k.index(0), outputs, 1, [&](Value o) {
    Value from = k.offset(c, k.mul(o, tileColumns)), to = k.offset(k.offset(dw, k.mul(k.add(o0, o), in)), i0);
    k.loop(k.index(0), inputs, lanes, [&](Value i) {
      k.storeMasked(k.load(k.offset(from, i), lanes), k.offset(to, i), k.lanesBelow(i, inputs));
    });
  });
  return {{Partition::Unit::One, 1, rowTiles * columnTiles}, (aRows * t.stride + (depth + t.block) * tileColumns) * k.bytes()};
}

// A chunk owns 64 columns.
Backend::KernelInfo emitBiasGrad(KernelBuilder &k, BiasGradOp op) {
  const int64_t width = op.getType().getDimSize(0), lanes = k.lanes();
  Value dy = k.buffer(0), db = k.buffer(1), stride = k.stride(0), feature = k.mul(k.chunk, 64);
  auto columns = [&](int64_t used) {
    Values sums((used + lanes - 1) / lanes, k.splat(0));
    sums = k.loop(k.index(0), k.rowCount(), 1, sums, [&](Value row, Values state) {
      Value from = k.offset(k.offset(dy, k.mul(row, stride)), feature);
      for (auto [v, sum] : llvm::enumerate(state))
        sum = k.addf(sum, k.load(k.offset(from, static_cast<int64_t>(v) * lanes), lanes));
      return state;
    });
    for (auto [v, sum] : llvm::enumerate(sums)) {
      int64_t at = static_cast<int64_t>(v) * lanes;
      k.storePart(sum, k.offset(k.offset(db, feature), at), std::min(lanes, used - at));
    }
  };
  if (width < 64)
    columns(width);
  else if (width % 64 == 0)
    columns(64);
  else
    k.when(k.less(k.add(feature, 63), k.index(width)), [&] { columns(64); }, [&] { columns(width % 64); });
  return {{Partition::Unit::One, 1, (width + 63) / 64}, 0};
}

//===--------------------------------------------------------------------------------------------------------===//
// Packing
//===--------------------------------------------------------------------------------------------------------===//

Backend::PackInfo emitPackWeight(KernelBuilder &k, RankedTensorType weight, bool transposed) {
  Tiling t(k);
  const int64_t lanes = k.lanes(), columns = weight.getDimSize(1);
  const int64_t inner = transposed ? columns : weight.getDimSize(0), outer = transposed ? weight.getDimSize(0) : columns;
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
