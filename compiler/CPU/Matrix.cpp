// Matrix products over rows: the loops around the micro-kernel, over panels of packed weights and tiles of results in
// scratch.
#include "Matrix.h"
#include "Emitters.h"
#include "Int4.h"
#include "Int8.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "support/Error.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;

namespace xfc {
namespace {

//===--------------------------------------------------------------------------------------------------------===//
// x W^T and dy W
//===--------------------------------------------------------------------------------------------------------===//

// Multiplies a block of rows of x by panels of a packed weight, in groups of 64 columns, through a tile in scratch. If
// the inner dimension is one block, or if rows are copied as a whole, all groups share one tile, which stays in the L1
// cache (that of AMX in the L2 cache, or if the inner dimension is one block, a few rows in the L1 cache); otherwise
// each group has a tile for its sums.
struct Product {
  KernelBuilder &k;
  Tiling t;
  int64_t inner, columns; // K and N, in elements
  int64_t groups;         // per chunk, at most
  // Whether rows of x are copied to scratch in another form; otherwise they are read in place. Tiles read rows of bf16
  // in place if these end with a tile, but for the last ones of a block, which do not fill the tiles' rows.
  bool copies, copiesLast;
  View x, packed; // rows of elements; panels of words
  View a, c;      // in scratch: the copied rows, and the tiles of results

  Product(KernelBuilder &k, const Tiling &t, BufferIndex rows, BufferIndex weight, int64_t inner, int64_t columns,
          int64_t groups)
      : k(k), t(t), inner(inner), columns(columns), groups(groups), copiesLast(readInPlace(t, rows, inner)) {
    copies = t.products != Products::Elements && !copiesLast;
    x = k.rowsOf(rows);
    packed = k.buffer(weight).as(k.element);
    a = k.scratch.inRows(t.stride);
    c = (a + copiedRows() * t.stride).inRows(Tiling::group);
  }
  // Whether tiles read all rows in place but the last ones.
  static bool readInPlace(const Tiling &t, BufferIndex rows, int64_t inner) {
    return t.products == Products::Tiles && rows.element().isBF16() && inner % (t.pair * Tiling::tile) == 0;
  }
  int64_t tiles() const { return !t.whole && t.units(inner) > t.depth ? groups : 1; }
  int64_t copiedRows() const { return copies ? t.block : copiesLast ? t.rows : 0; }
  // Whether AMX's sums begin and end with one block of the inner dimension.
  bool sumsInTurns() const { return isTiled(t.products) && t.units(inner) <= t.depth; }
  int64_t rowsOfSums() const { return sumsInTurns() ? Completion::rowsInTurns : t.block * tiles(); }
  int64_t scratchBytes() const { return (copiedRows() * t.stride + rowsOfSums() * Tiling::group) * k.bytes(); }

  // Copies x[row + begin .. row + end)[at .. at + elements) to the rows of scratch from `begin` on.
  void copyRows(Value row, const Term &begin, Value end, const Term &at, int64_t elements) {
    if (copies)
      copyRows(row, begin, end, at, elements, begin);
  }
  void copyRows(Value row, const Term &begin, Value end, const Term &at, int64_t elements, const Term &to) {
    Value column = k.index(at);
    View first = a.row(k.index(to));
    k.loop(begin, end, 1, [&](Value r) {
      View from = x(k.add(row, r), column);
      copyLeft(k, t, from, first.row(k.sub(r, begin)), elements);
    });
  }

  // Consumes a row's products: the first feature, a function that returns the vector of products from feature + i on
  // (static i), how many of the features are used, and how many there are to the next call's, or to the group's end.
  // Those of a group come at once or, by AMX, in two halves.
  using Vector = std::function<Value(int64_t i)>;
  using Finish = std::function<void(Value feature, const Vector &products, int64_t used, int64_t room)>;
  using Begin = std::function<Finish(Value row)>;
  // Rows that are read or written when sums are complete, which are prefetched before.
  struct Touched {
    View rows;
    bool writes;
  };

  // Multiplies the rows `row` .. row + count - 1 by the groups `group` .. end - 1 of columns, and prefetches the rows
  // from `next` on, which this thread processes next. With `copied`, rows that are copied block by block are in scratch
  // already.
  void compute(Value row, Value count, Value group, Value end, Value next, const Begin &begin,
               ArrayRef<Touched> touched, bool copied = false) {
    const int64_t units = t.units(inner), last = (units - 1) / t.depth * t.depth;
    // While it is multiplied by the first panel, each tile of rows converts the next whole one. Rows of int8 cannot be
    // converted in parts, since their largest element determines their scale.
    const bool convertsNext = t.products == Products::Tiles && copies && x.element == k.element;
    // Multiplies by a block of the inner dimension of a group of columns.
    auto multiply = [&](Value g, Value at, int64_t depth, Value accumulate, bool finish) {
      View tile = tiles() > 1 ? c + k.mul(k.sub(g, group), t.block * Tiling::group) : c;
      auto columnsOfGroup = [&](int64_t used) {
        const int64_t panelWords = t.panelWords(inner);
        View panels = packed + k.mul(g, t.unit() * panelWords), b = panels + k.mul(at, t.panel);
        const bool tiled = isTiled(t.products);
        Ahead ahead = [&](Value tileOfRows, int64_t panel) {
          if (finish && !tiled)
            for (int64_t r = 0; r < t.rows; ++r)
              for (int64_t column = 0; column < t.panel; column += 128 / k.bytes()) {
                Value feature = k.add(k.mul(g, Tiling::group), panel * t.panel + column);
                Value at = k.add(row, k.add(k.mul(tileOfRows, t.rows), r));
                for (const Touched &each : touched)
                  each.writes ? k.prefetchForWriting(each.rows(at, feature)) : k.prefetch(each.rows(at, feature));
              }
        };
        // What is copied next: the next rows, or these rows' next block.
        Value nextRow = finish || t.whole ? next : row;
        Value nextAt = t.whole ? k.mul(at, t.pair) : finish ? k.index(0) : k.mul(k.add(at, t.depth), t.pair);
        Value tilesBefore = k.mul(k.sub(g, group), t.fetchingTiles());
        const int64_t bytes = KernelBuilder::bytesOf(x.element);
        const FetchedRows rows(k, t, x(nextRow, nextAt), t.rowsAhead(inner * bytes), t.depth * t.pair * bytes,
                               tilesBefore, t.fetchingTiles(), depth, turns());
        const View leftRows = copiesLast ? asWords(k, x.row(row)) + at : t.whole ? a + at : copies ? a : x(row, at);
        Left left{leftRows, t.left, k.mul(leftRows.stride, t.rows)};
        left.passes = tiled;
        if (copiesLast)
          left.last = t.whole ? a + at : a;
        if (convertsNext) {
          Value element = k.mul(at, t.pair);
          View from = x(k.add(row, t.rows), element);
          const int64_t elements = inner - last * t.pair;
          Value others = k.max(k.sub(k.div(count, t.rows), 1), 0);
          left.next = {from, finish && elements < depth * t.pair ? k.index(elements) : Value(),
                       k.select(k.equal(g, group), others, 0)};
        }
        const Right right{b.inRows(panelWords)};
        // Finishes the sums of a row of `of` columns, from `column` of the group on.
        auto finishRow = [&](Value r, Value column, const View &sums, const View &panelsOf, int64_t of, int64_t room) {
          auto products = [&](int64_t i) {
            Value sum = k.load(sums + i, k.lanes());
            if (!isInteger(t.products))
              return sum;
            if (t.products == Products::Nibbles)
              return scaleInt4(k, t, sum, a.row(r));
            View panel = panelsOf + i / t.panel * panelWords;
            return scaleInt8(k, t, sum, a.row(r), inner, panel, i % t.panel);
          };
          const Finish finishIt = begin(k.add(row, r));
          finishIt(k.add(k.mul(g, Tiling::group), column), products, of, room);
        };
        Completion completion;
        completion.inTurns = sumsInTurns();
        for (const Touched &each : touched)
          completion.touched.push_back(each.rows(row, k.mul(g, Tiling::group)).inRows(each.rows.stride));
        completion.finish = [&](Value first, Value rows, Value panel, const View &sums) {
          auto ofColumns = [&](int64_t of, int64_t room) {
            Value column = k.mul(panel, t.panel);
            View panelOf = panels + k.mul(panel, panelWords);
            k.loop(0, rows, 1, [&](Value r) {
              Value ofBlock = k.add(first, r);
              finishRow(ofBlock, column, sums.row(r), panelOf, of, room);
            });
          };
          if (used == Tiling::group)
            ofColumns(t.panel, t.panel);
          else if (used <= t.panel)
            ofColumns(used, Tiling::group);
          else
            k.when(
                k.equal(panel, 0), [&] { ofColumns(t.panel, t.panel); }, [&] { ofColumns(used % t.panel, t.panel); });
        };
        multiplyPanels(k, t, left, right, t.panels(used), depth, tile, count, accumulate, ahead, /*fetchNext=*/true,
                       rows, finish && tiled ? &completion : nullptr);
        if (finish && !tiled)
          k.loop(0, count, 1, [&](Value r) {
            Value column = k.index(0);
            finishRow(r, column, tile.row(r), panels, used, Tiling::group);
          });
      };
      const int64_t tail = columns % Tiling::group;
      if (columns < Tiling::group)
        columnsOfGroup(columns);
      else if (!tail)
        columnsOfGroup(Tiling::group);
      else
        k.when(
            k.less(g, columns / Tiling::group), [&] { columnsOfGroup(Tiling::group); }, [&] { columnsOfGroup(tail); });
    };
    auto eachBlock = [&](const std::function<void(Value at, int64_t depth, Value accumulate, bool finish)> &body) {
      if (last > 0)
        k.loop(0, last, t.depth, [&](Value at) { body(at, t.depth, k.less(0, at), false); });
      Value at = k.index(last);
      body(at, units - last, k.boolean(last > 0), true);
    };
    Value whole = k.mul(k.div(count, t.rows), t.rows);
    if (t.whole) {
      // If tiles convert the next ones, only the first tile of rows is copied here, and the last one if it is not
      // whole.
      Value first = convertsNext ? k.min(t.rows, count) : count;
      copyRows(row, 0, first, 0, inner);
      if (convertsNext)
        copyRows(row, k.max(first, whole), count, 0, inner);
      if (copiesLast)
        copyRows(row, whole, count, 0, inner, 0);
      k.loop(group, end, 1, [&](Value g) {
        eachBlock([&](Value at, int64_t depth, Value accumulate, bool finish) {
          multiply(g, at, depth, accumulate, finish);
        });
      });
      return;
    }
    eachBlock([&](Value at, int64_t depth, Value accumulate, bool finish) {
      const int64_t elements = finish ? inner - last * t.pair : depth * t.pair;
      if (copiesLast)
        copyRows(row, whole, count, k.mul(at, t.pair), elements, 0);
      else if (!copied)
        copyRows(row, 0, count, k.mul(at, t.pair), elements);
      k.loop(group, end, 1, [&](Value g) { multiply(g, at, depth, accumulate, finish); });
    });
  }

  // How many groups share the prefetching of the next rows: the first ones of a chunk, or all of the product.
  int64_t turns() const { return t.whole ? (columns + Tiling::group - 1) / Tiling::group : 4; }
};

// Dropout of whole groups. Outside training, the threshold is 0 and the factor is 1, so that every element is kept
// unchanged.
struct Dropout {
  KernelBuilder &k;
  const bool kept; // whether every element is kept, regardless of random numbers
  Value threshold, factor;
  // If a row's groups come in halves: two words for each row of a chunk, whose bits say what a group keeps.
  View bits;

  Dropout(KernelBuilder &k, DropoutOp op, const View &bits) : k(k), kept(op.getKept()), bits(bits) {
    const double rate = op.getRate().convertToDouble();
    Value limit = k.i32Of(static_cast<int32_t>(static_cast<uint32_t>(rate * 4294967296.0)));
    threshold = k.broadcast(k.select(k.training(), limit, 0));
    factor = k.broadcast(k.keptFactor(rate));
  }
  KernelBuilder::DropoutKey key(Value row) {
    if (kept)
      return {};
    Value rows = k.rows(), sequence = k.loadI32(k.field(rows, offsetof(xfc_rows, sequence_of), k.ptr), row);
    Value sentence = k.loadI32(k.field(rows, offsetof(xfc_rows, sentences), k.ptr), sequence);
    Value position = k.loadI32(k.field(rows, offsetof(xfc_rows, positions), k.ptr), row);
    return k.dropoutKey(k.immediate(0), position, sentence, 0);
  }
  // The factors of the half group from `feature` on of a row of the chunk. Its words are drawn with the first half.
  SmallVector<Value> factorsOfHalf(Value row, Value at, Value feature, int64_t used) {
    const int64_t lanes = k.lanes(), half = 2 * lanes;
    SmallVector<Value> result((used + lanes - 1) / lanes, factor);
    if (kept)
      return result;
    Value second = k.rem(k.div(feature, half), 2);
    View words = bits + k.mul(at, 2);
    k.when(k.equal(second, 0), [&] {
      Value word;
      const KernelBuilder::DropoutKey ofRow = key(row);
      for (auto [i, numbers] : llvm::enumerate(k.philox(ofRow, k.counters(feature, 0)))) {
        Value mask = k.notLess(numbers, threshold);
        Value sixteen = vector::ExtractOp::create(
            k.b, vector::BitCastOp::create(k.b, VectorType::get({1}, k.b.getI16Type()), mask), 0);
        Value wide = arith::ExtUIOp::create(k.b, k.i32, sixteen);
        if (i % 2 == 0) {
          word = wide;
          continue;
        }
        Value both = arith::OrIOp::create(k.b, word, arith::ShLIOp::create(k.b, wide, k.i32Of(16)));
        LLVM::StoreOp::create(k.b, both, (words + static_cast<int64_t>(i / 2)).data);
      }
    });
    Value word = LLVM::LoadOp::create(k.b, k.i32, (words + second).data);
    for (int64_t i = 0; i < used; i += lanes) {
      Value shifted = i ? arith::ShRUIOp::create(k.b, word, k.i32Of(16)) : word;
      Value sixteen = vector::BroadcastOp::create(k.b, VectorType::get({1}, k.b.getI16Type()),
                                                  arith::TruncIOp::create(k.b, k.b.getI16Type(), shifted));
      Value mask = vector::BitCastOp::create(k.b, VectorType::get({16}, k.i1), sixteen);
      result[i / lanes] = k.select(mask, factor, 0);
    }
    return result;
  }
  // The factors of up to 64 features from `feature` on, in vectors: 0 or `factor`.
  SmallVector<Value> factors(const KernelBuilder::DropoutKey &key, Value feature, int64_t used) {
    SmallVector<Value> result((used + k.lanes() - 1) / k.lanes(), factor);
    for (int64_t i = 0; !kept && i < std::min<int64_t>(16, used); i += k.lanes())
      for (auto [word, numbers] : llvm::enumerate(k.philox(key, k.counters(feature, i))))
        if (int64_t at = (static_cast<int64_t>(word) * 16 + i) / k.lanes(); at < static_cast<int64_t>(result.size()))
          result[at] = k.select(k.notLess(numbers, threshold), factor, 0);
    return result;
  }
};

// With as many chunks, up to eight threads have similar shares of the work.
constexpr int64_t enoughChunks = 16;

// The last `extras` operands are the extras of the epilogue.
KernelInfo emitProduct(KernelBuilder &k, Operation *op, BufferIndex rows, BufferIndex weight,
                       std::optional<BufferIndex> biases, int64_t extras, int64_t inner, int64_t columns,
                       Region &epilogue) {
  const int64_t all = (columns + Tiling::group - 1) / Tiling::group;
  // At least two chunks per block of rows if there are enough columns, so that a few rows keep two threads busy.
  const int64_t groups = std::clamp<int64_t>((all + 1) / 2, 1, 4), slabs = (all + groups - 1) / groups;
  Tiling t(k, inner, productsFor(k, cast<ProductOpInterface>(op).getCompute()));
  if (Product::readInPlace(t, rows, inner))
    t.readInPlace();
  Product product(k, t, rows, weight, inner, columns, groups);
  const int64_t firstExtra = op->getNumOperands() - extras;

  Value row, group, end, isLast;
  if (t.whole) {
    // Each slab converts the rows again, so there are only as many as it takes to make enough chunks. The chunks after
    // them are empty.
    Value blocks = k.div(k.add(k.rowCount(), t.block - 1), t.block);
    Value used = k.min(slabs, k.div(k.add(blocks, enoughChunks - 1), blocks));
    Value ofSlab = k.div(k.add(used, all - 1), used), block = k.div(k.chunk, used);
    row = k.mul(block, t.block);
    group = k.mul(k.sub(k.chunk, k.mul(block, used)), ofSlab), end = k.min(all, k.add(group, ofSlab));
    isLast = k.less(all - 1, end);
  } else {
    Value slab = k.rem(k.chunk, slabs);
    row = k.mul(k.div(k.chunk, slabs), t.block);
    group = k.mul(slab, groups), end = k.min(all, k.add(group, groups));
    isLast = k.equal(slab, slabs - 1);
  }
  Value count = k.min(t.block, k.sub(k.rowCount(), row));
  View bias = biases ? k.buffer(*biases) : View();
  std::optional<Dropout> dropout;
  const bool inHalves = isTiled(t.products);
  int64_t scratch = product.scratchBytes();
  if (DropoutOp drops = dropoutOf(epilogue)) {
    dropout.emplace(k, drops, k.scratch + scratch / k.bytes());
    if (inHalves && !dropout->kept)
      scratch += t.block * 2 * k.bytes();
  }
  // The next slab has the same rows.
  Value next = k.select(isLast, k.add(row, t.block), row);
  SmallVector<Product::Touched> touched;
  for (int64_t e = 0; e < extras; ++e)
    touched.push_back({k.rowsOf(op->getOpOperand(firstExtra + e)), false});
  for (OpResult result : op->getResults())
    if (!result.use_empty())
      touched.push_back({k.rowsOf(result), true});
  Product::Begin begin = [&](Value at) -> Product::Finish {
    SmallVector<View> inputs, outputs;
    for (int64_t e = 0; e < extras; ++e)
      inputs.push_back(k.rowOf(op->getOpOperand(firstExtra + e), at));
    for (OpResult result : op->getResults())
      outputs.push_back(result.use_empty() ? View() : k.rowOf(result, at));
    KernelBuilder::DropoutKey key;
    if (dropout && !inHalves)
      key = dropout->key(at);
    return [=, &k, &epilogue, &dropout](Value feature, const Product::Vector &products, int64_t used, int64_t) {
      SmallVector<Value> factors;
      if (dropout)
        factors =
            inHalves ? dropout->factorsOfHalf(at, k.sub(at, row), feature, used) : dropout->factors(key, feature, used);
      for (int64_t i = 0; i < used; i += k.lanes()) {
        Value y = products(i);
        if (bias)
          y = k.addf(y, k.load(bias + feature + i, k.lanes()));
        SmallVector<Value> results = {y};
        if (!epilogue.empty()) {
          SmallVector<Value> arguments = {y};
          for (const View &input : inputs)
            arguments.push_back(k.load(input + feature + i, k.lanes()));
          results = evaluateEpilogue(k, epilogue, arguments, dropout ? factors[i / k.lanes()] : Value());
        }
        for (auto [output, result] : llvm::zip_equal(outputs, results))
          if (output)
            k.storePart(result, output + feature + i, std::min(k.lanes(), used - i));
      }
    };
  };
  if (t.whole) {
    Value hasColumns = k.less(group, end);
    k.when(k.both(k.less(row, k.rowCount()), hasColumns), [&] {
      configureTiles(k, t, count);
      product.compute(row, count, group, end, next, begin, touched);
    });
  } else {
    configureTiles(k, t, count);
    product.compute(row, count, group, end, next, begin, touched);
  }
  return {{Partition::Unit::Rows, t.block, slabs}, scratch};
}

} // namespace

static KernelInfo emitLinear(KernelBuilder &k, LinearOp op) {
  RankedTensorType weight = op.getWeight().getType();
  return emitProduct(k, op, op.getXMutable(), op.getWeightMutable(),
                     op.getBias() ? std::optional<BufferIndex>(op.getBiasMutable()) : std::nullopt,
                     op.getExtras().size(), weight.getDimSize(1), weight.getDimSize(0), op.getEpilogue());
}

static KernelInfo emitLinearInputGrad(KernelBuilder &k, LinearInputGradOp op) {
  RankedTensorType weight = op.getWeight().getType();
  return emitProduct(k, op, op.getDyMutable(), op.getWeightMutable(), std::nullopt, op.getExtras().size(),
                     weight.getDimSize(0), weight.getDimSize(1), op.getEpilogue());
}

namespace {

// Computes the logits of a block of rows, then their losses while they are in cache; if `dloss` is given, their
// gradient overwrites them. The loss needs all logits of a row at once: unless they are `kept` as a result, they stay
// in scratch.
template <typename Op>
KernelInfo emitLinearLoss(KernelBuilder &k, Op op, Value result, bool kept,
                          ArrayRef<std::pair<Value, Value RowLoss::*>> numbers, std::optional<BufferIndex> dloss) {
  RankedTensorType weight = op.getWeight().getType();
  const int64_t inner = weight.getDimSize(1), vocabulary = weight.getDimSize(0);
  const Tiling t(k, inner, productsFor(k, op.getCompute()));
  const int64_t all = (vocabulary + Tiling::group - 1) / Tiling::group, block = kept ? t.block : t.blockOfResults();
  Product product(k, t, op.getXMutable(), op.getWeightMutable(), inner, vocabulary, t.whole ? all : 4);
  Value row = k.mul(k.chunk, block), count = k.min(block, k.sub(k.rowCount(), row));
  configureTiles(k, t, count);
  View bias = op.getBias() ? k.buffer(op.getBiasMutable()) : View(), logits;
  const View inScratch = k.scratch + product.scratchBytes() / k.bytes();
  if (kept) {
    Value stride = k.stride(result), first = k.mul(row, stride);
    logits = (k.buffer(result) + first).inRows(stride);
  } else {
    logits = inScratch.inRows(vocabulary);
  }
  const bool narrow = logits.element != k.element;
  const bool copied = !t.whole && product.tiles() == 1;
  if (copied)
    product.copyRows(row, 0, count, 0, inner);
  Product::Begin store = [&](Value at) -> Product::Finish {
    View to = logits.row(k.sub(at, row));
    return [=, &k](Value feature, const Product::Vector &products, int64_t used, int64_t) {
      for (int64_t i = 0; i < used; i += k.lanes()) {
        Value y = products(i);
        if (bias)
          y = k.addf(y, k.load(bias + feature + i, k.lanes()));
        k.storePart(y, to + feature + i, std::min(k.lanes(), used - i));
      }
    };
  };
  SmallVector<Product::Touched, 1> touched;
  if (kept)
    touched.push_back({k.rowsOf(result), true});
  k.loop(0, all, product.groups, [&](Value group) {
    Value next = t.whole ? k.add(row, block) : row, end = k.min(all, k.add(group, product.groups));
    product.compute(row, count, group, end, next, store, touched, copied);
  });
  const LossTargets targets(k, op);
  k.loop(0, count, 1, [&](Value r) {
    Value at = k.add(row, r);
    View from = logits.row(r);
    Value gradient = dloss ? k.load(k.rowOf(*dloss, at)) : Value();
    RowLoss values = emitCrossEntropyRow(k, from, vocabulary, targets.of(at), gradient, narrow ? inScratch : View());
    for (auto [result, value] : numbers)
      if (!result.use_empty())
        k.store(values.*value, k.rowOf(result, at));
  });
  const int64_t rowsInScratch = !kept ? block : narrow ? 1 : 0;
  return {{Partition::Unit::Rows, block, 1},
          product.scratchBytes() + (rowsInScratch * vocabulary + (narrow ? k.lanes() : 0)) * k.bytes()};
}

} // namespace

static KernelInfo emitLinearCrossEntropy(KernelBuilder &k, LinearCrossEntropyOp op) {
  return emitLinearLoss(k, op, op.getLogits(), !op.getLogits().use_empty(),
                        {{op.getLoss(), &RowLoss::loss}, {op.getNll(), &RowLoss::nll}, {op.getLse(), &RowLoss::lse}},
                        std::nullopt);
}

static KernelInfo emitLinearCrossEntropyWithGrad(KernelBuilder &k, LinearCrossEntropyWithGradOp op) {
  return emitLinearLoss(k, op, op.getDlogits(), !op.getDlogits().use_empty(),
                        {{op.getLoss(), &RowLoss::loss}, {op.getNll(), &RowLoss::nll}}, op.getDlossMutable());
}

// Computes the logits of a block of rows and a slab of columns; only the largest ones and the log-sum-exp leave the
// cache. A chunk is always one slab, whatever the number of rows.
static KernelInfo emitLinearCandidates(KernelBuilder &k, LinearCandidatesOp op) {
  RankedTensorType weight = op.getWeight().getType();
  const int64_t inner = weight.getDimSize(1), vocabulary = weight.getDimSize(0), slabs = op.getSlabs(),
                lanes = k.lanes();
  static_assert(Tiling::group == candidateGroup);
  const Tiling t(k, inner, productsFor(k, op.getCompute()));
  const int64_t all = (vocabulary + Tiling::group - 1) / Tiling::group, block = t.blockOfResults();
  Product product(k, t, op.getXMutable(), op.getWeightMutable(), inner, vocabulary, op.getSlab() / Tiling::group);
  const bool counted = !op.getRenormalize(); // whether excluded logits count for the log-sum-exp
  const int64_t stride = op.getSlab() + (counted ? excludedRoom(k, op.getExcluded()) : 0);
  Value slab = k.rem(k.chunk, slabs), row = k.mul(k.div(k.chunk, slabs), block);
  Value count = k.min(block, k.sub(k.rowCount(), row));
  Value group = k.mul(slab, product.groups), end = k.min(all, k.add(group, product.groups)),
        first = k.mul(group, Tiling::group);
  configureTiles(k, t, count);
  View bias = op.getBias() ? k.buffer(op.getBiasMutable()) : View(),
       logits = (k.scratch + product.scratchBytes() / k.bytes()).inRows(stride);
  const Value none = k.splat(-INFINITY);
  Product::Begin store = [&](Value at) -> Product::Finish {
    View to = logits.row(k.sub(at, row));
    return [=, &k](Value feature, const Product::Vector &products, int64_t used, int64_t room) {
      for (int64_t i = 0; i < room; i += lanes) {
        Value y = none;
        if (i < used) {
          y = products(i);
          if (bias)
            y = k.addf(y, k.load(bias + feature + i, lanes));
          if (used - i < lanes)
            y = k.select(k.lanesBelow(i, used), y, none);
        }
        k.store(y, to + k.sub(feature, first) + i);
      }
    };
  };
  // The next slab has the same rows. Logits stay in scratch, so there is nothing to prefetch for them.
  Value nextBlock = k.add(row, block), next = k.select(k.equal(slab, slabs - 1), nextBlock, row);
  product.compute(row, count, group, end, next, store, {});
  const int64_t best = op.getCount();
  Value width = k.mul(k.sub(end, group), Tiling::group);
  k.loop(0, count, 1, [&](Value r) {
    Value at = k.add(row, r);
    View logitsRow = logits.row(r);
    if (!op.getWantedLogit().use_empty()) {
      Value column = k.sub(k.loadIndex(k.buffer(op.getWantedMutable()) + at), first);
      k.when(k.within(column, width), [&] {
        View wanted = k.rowOf(op.getWantedLogit(), at);
        k.store(k.load(logitsRow + column), wanted);
      });
    }
    SlabCandidates found = emitSlabCandidates(k, logitsRow, width, first, op.getExcluded(),
                                              counted ? logitsRow + op.getSlab() : View(), best);
    auto listOf = [&](BufferIndex result) {
      Value column = k.mul(slab, best);
      return k.rowOf(result, at) + column;
    };
    if (!op.getTokens().use_empty())
      storeTokens(k, found.tokens, listOf(op.getTokens()));
    if (!op.getLargest().use_empty())
      k.store(found.largest, listOf(op.getLargest()));
    if (!op.getLse().use_empty())
      k.store(found.lse, k.rowOf(op.getLse(), at) + slab);
  });
  return {{Partition::Unit::Rows, block, slabs}, product.scratchBytes() + block * stride * k.bytes()};
}

//===--------------------------------------------------------------------------------------------------------===//
// Gradients of parameters
//===--------------------------------------------------------------------------------------------------------===//

// Each chunk owns a tile of dW and processes the rows in blocks, in order: it copies a block's dy into columns as wide
// as the micro-kernel has rows, or transposes it for AMX, and copies its x into panels. In bf16, units are pairs of
// rows. The chunks of the first columns also own db.
static KernelInfo emitLinearWeightGrad(KernelBuilder &k, LinearWeightGradOp op) {
  // Rows per block. With 128, dy, the panel of x and what is prefetched for the next one share the L2 cache with dW;
  // with 256, the weight gradients of the model small took up to 8 % longer, and with AVX2 up to 16 %.
  // AMX multiplies so fast that loading and storing the sums, once per block, would take half of the L2 cache's
  // bandwidth; with 256, a panel of x (16 KB) still stays in the L1 cache, beside the tiles of dy that pass by and the
  // part of the next panel that is packed meanwhile.
  const Products products = gradientProductsFor(k, op.getCompute());
  const bool tiled = isTiled(products), rounds = op.getCompute().has_value();
  const int64_t depth = tiled ? 256 : 128;
  const Tiling t(k, depth, products);
  RankedTensorType type = op.getDweight().getType();
  const int64_t out = type.getDimSize(0), in = type.getDimSize(1), lanes = k.lanes();
  auto upTo = [](int64_t n, int64_t unit) { return (n + unit - 1) / unit; };
  const int64_t tilePanels = std::min(t.panels(in), 512 / t.panel), tileColumns = tilePanels * t.panel,
                columnTiles = upTo(in, tileColumns);
  // Tiles are tall, since each of them packs panels of x, but there are enough of them for some threads. They have
  // similar heights, so that threads get similar work, and their number is even, so that two threads finish together.
  const int64_t wanted =
      std::max(upTo(out, 3 * t.blockOfResults()), std::min(upTo(4, columnTiles), upTo(out, t.blockOfResults())));
  const int64_t even = wanted + (wanted > 1 && wanted % 2 && columnTiles % 2);
  const int64_t height = upTo(upTo(out, even), t.rows) * t.rows, rowTiles = upTo(out, height), tiles = height / t.rows;
  // A column of dy holds `depth` times the micro-kernel's rows. It is stored in overlapping vectors, no wider than
  // necessary (rounding needs whole ones), and has room for the excess of the last one. Its size is an odd number of
  // cache lines, so that columns spread over the cache's sets.
  const int64_t line = 64 / k.bytes(), width = rounds ? lanes : std::min<int64_t>(lanes, llvm::PowerOf2Ceil(t.rows));
  const int64_t vectors = upTo(t.rows, width),
                tileStride =
                    tiled ? t.rows * t.stride : (upTo((t.depth - 1) * t.rows + vectors * width, line) | 1) * line;
  // The first tile's product packs each panel if packing is a plain copy, without rounding or masks, and the tile is
  // whole.
  const bool packing = !rounds && in % t.panel == 0 && (out % height == 0 || out % height >= t.rows);
  // While AMX multiplies a panel, it packs the next one, if a block has all its rows and a panel all its columns: the
  // more tiles of dy there are, the fewer units in each step.
  const bool packsNext = tiled && in % t.panel == 0;
  const auto unitsPerStep = static_cast<int64_t>(llvm::PowerOf2Ceil(upTo(Tiling::tile, tiles)));
  const int64_t packingTiles = Tiling::tile / unitsPerStep;
  // Whole panels accumulate in place. Others accumulate in scratch and are copied; and so do those of AMX, in rows that
  // spread over the caches' sets.
  const bool inPlace = in % t.panel == 0 && !tiled && !op.getDweight().use_empty();
  const int64_t sumsStride = tiled ? tileColumns + Tiling::tile : tileColumns;

  const BufferIndex ofDy = op.getDyMutable(), ofX = op.getXMutable();
  View dy = k.buffer(ofDy), x = k.buffer(ofX);
  dy.stride = k.stride(ofDy);
  x.stride = k.stride(ofX);
  Value rows = k.rowCount();
  Value o0 = k.mul(k.div(k.chunk, columnTiles), height), i0 = k.mul(k.rem(k.chunk, columnTiles), tileColumns);
  Value outputs = k.min(height, k.sub(out, o0)), inputs = k.min(tileColumns, k.sub(in, i0));
  Value panels = k.div(k.add(inputs, t.panel - 1), t.panel), usedTiles = k.div(k.add(outputs, t.rows - 1), t.rows);
  View dw;
  if (!op.getDweight().use_empty()) {
    Value first = k.mul(o0, in);
    dw = (k.buffer(op.getDweight()) + first + i0).inRows(in);
  }
  // The size of a panel of x is one unit more than a power of two, so that the panels of a row, if all are kept, spread
  // over the cache's sets.
  const int64_t panelStride = (t.depth + 1) * t.panel, panelsSize = (packing ? 1 : tilePanels) * panelStride;
  // Columns of dy of which the micro-kernel's rows are adjacent, or rows of units.
  const View a = k.scratch.inRows(tiled ? t.stride : 1), b = (a + tiles * tileStride).inRows(panelStride),
             sums = b + panelsSize;
  const int64_t sumsSize = upTo(height, lanes) * lanes;
  const View c = inPlace ? dw : (sums + sumsSize).inRows(sumsStride);
  const bool hasBias = op.getDbias() && !op.getDbias().use_empty();
  auto whenBias = [&](const std::function<void()> &body) {
    if (hasBias)
      k.when(k.equal(i0, 0), body);
  };

  // Runs body(unit, whether all its rows exist) for the units of `count` rows.
  auto eachUnit = [&](Value count, const std::function<void(Value, bool)> &body) {
    Value whole = k.div(count, t.pair);
    k.loop(0, whole, 1, [&](Value u) { body(u, true); });
    if (t.pair > 1)
      k.when(k.less(k.mul(whole, t.pair), count), [&] { body(whole, false); });
  };

  configureTiles(k, t, k.index(Tiling::tile));
  whenBias([&] { k.loop(0, sumsSize, lanes, [&](Value i) { k.storePart(0, sums + i, lanes); }); });
  k.when(k.equal(rows, 0), [&] {
    k.loop(0, outputs, 1, [&](Value o) {
      k.loop(0, k.mul(panels, t.panel), lanes, [&](Value i) { k.storePart(0, c(o, i), lanes); });
    });
  });
  k.loop(0, rows, depth, [&](Value row) {
    Value count = k.min(depth, k.sub(rows, row)), units = t.units(k, count);
    auto transposeRows = [&](bool sum) { transposeLeft(k, t, dy(row, o0), count, outputs, a, sum ? sums : View()); };
    auto copyRows = [&] {
      eachUnit(count, [&](Value u, bool whole) {
        View from = dy(k.add(row, k.mul(u, t.pair)), o0), to = a + k.mul(u, t.rows);
        k.loop(0, usedTiles, 1, [&](Value tile) {
          View source = from + k.mul(tile, t.rows), target = to + k.mul(tile, tileStride);
          for (int64_t v = 0; v < vectors; ++v) {
            View at = source + v * width;
            Value second = t.pair > 1 && whole ? k.load(at + k.index(dy.stride), width) : k.splat(0);
            View place = target + v * width;
            k.store(unitsOf(k, t, k.load(at, width), second, rounds), place);
          }
        });
      });
    };
    auto sumRows = [&] {
      // Sums several vectors at a time to hide the latency of additions.
      auto sumColumns = [&](Value begin, Value end, int64_t together) {
        k.loop(begin, end, together * lanes, [&](Value o) {
          View from = dy(row, o0) + o, to = sums + o;
          Values state;
          for (int64_t i = 0; i < together; ++i)
            state.push_back(k.load(to + i * lanes, lanes));
          state = k.loop(0, count, 1, state, [&](Value r, Values sum) {
            for (int64_t i = 0; i < together; ++i)
              sum[i] = k.addf(sum[i], k.load(from(r, i * lanes), lanes));
            return sum;
          });
          for (int64_t i = 0; i < together; ++i)
            k.store(state[i], to + i * lanes);
        });
      };
      Value most = k.mul(k.div(outputs, 4 * lanes), 4 * lanes);
      sumColumns(k.index(0), most, 4);
      sumColumns(most, outputs, 1);
    };
    if (!tiled) {
      copyRows();
      whenBias(sumRows);
    } else if (hasBias) {
      k.when(k.equal(i0, 0), [&] { transposeRows(true); }, [&] { transposeRows(false); });
    } else {
      transposeRows(false);
    }
    View xFrom = x(row, i0);
    Value whole = packsNext ? k.equal(count, depth) : Value();
    if (!packing)
      packRight(k, t, xFrom, count, rounds, b, packsNext ? k.select(whole, 1, panels) : panels,
                in % t.panel ? inputs : Value());
    Value accumulate = k.less(0, row);
    k.loop(0, panels, 1, [&](Value p) {
      Ahead ahead = [&](Value tile, int64_t) {
        Value lastTile = k.sub(usedTiles, 1), next = k.mul(k.min(k.add(tile, 1), lastTile), t.rows);
        for (int64_t r = 0; r < t.rows; ++r)
          for (int64_t column = 0; column < t.panel; column += line) {
            Value feature = k.add(k.mul(p, t.panel), column);
            k.prefetchForWriting(c(k.add(next, r), feature));
          }
      };
      // Meanwhile, the next block of dy is prefetched, and the next panel of x, or its next block unless the first tile
      // packs the panels. The tiles of all panels share the prefetching of a block.
      Value nextBlock = k.add(row, depth), last = k.equal(p, k.sub(panels, 1));
      Value nextColumn = k.mul(k.add(p, 1), t.panel), nextPanel = k.select(last, i0, k.add(i0, nextColumn));
      auto ofBlock = [&](const View &from, int64_t columns) {
        const int64_t bytes = columns * KernelBuilder::bytesOf(from.element),
                      most = tiled ? tiles : upTo(FetchedRows::tilesFor(t, depth, bytes), tilePanels);
        return FetchedRows(k, t, from, depth, bytes, k.mul(p, most), most, t.depth, tilePanels);
      };
      const FetchedRows fetched[] = {packing ? FetchedRows(k, t, x(k.select(last, nextBlock, row), nextPanel), depth,
                                                           t.panel * k.bytes(), 0, tiles, t.depth, 1)
                                             : ofBlock(x(nextBlock, i0), tileColumns),
                                     ofBlock(dy(nextBlock, o0), height)};
      Right right = packing ? Right{b.inRows(0), xFrom + k.mul(p, t.panel)} : Right{b.row(p).inRows(0)};
      Value packs = packsNext ? k.both(whole, k.less(k.add(p, 1), panels)) : Value();
      if (packsNext)
        right.next = {xFrom + nextColumn, b.row(k.add(p, 1)), k.select(packs, packingTiles, 0), unitsPerStep};
      multiplyPanels(k, t, {a, tiled ? 1 : t.rows, tileStride, {}, {}, tiled}, right, 1, units, c + k.mul(p, t.panel),
                     outputs, accumulate, ahead, /*fetchNext=*/false, fetched);
      // The last chunk may have fewer tiles of dy, too few to pack the whole panel. Here it packs the rest.
      if (packsNext && out % height)
        k.when(packs, [&] {
          Value tilesThatPacked = k.min(k.div(k.add(outputs, Tiling::tile - 1), t.rows), packingTiles);
          Value done = k.mul(tilesThatPacked, unitsPerStep * (t.depth / Tiling::tile));
          View to = right.next.to + k.mul(done, t.panel);
          Value rest = k.sub(count, k.mul(done, t.pair));
          packRight(k, t, right.next.from.row(k.mul(done, t.pair)), rest, rounds, to.inRows(0), 1);
        });
    });
  });
  if (dw && !inPlace)
    k.loop(0, outputs, 1, [&](Value o) {
      View from = c.row(o), to = dw.row(o);
      k.loop(0, inputs, lanes, [&](Value i) {
        Value used = k.lanesBelow(i, inputs);
        View place = to + i;
        k.storeMasked(k.load(from + i, lanes), place, used);
      });
    });
  whenBias([&] {
    k.loop(0, outputs, lanes, [&](Value o) {
      Value used = k.lanesBelow(o, outputs);
      View place = k.buffer(op.getDbias()) + o0 + o;
      k.storeMasked(k.load(sums + o, lanes), place, used);
    });
  });
  const int64_t scratch = tiles * tileStride + panelsSize + sumsSize + (inPlace ? 0 : height * sumsStride);
  return {{Partition::Unit::One, 1, rowTiles * columnTiles}, scratch * k.bytes()};
}

//===--------------------------------------------------------------------------------------------------------===//
// Packing
//===--------------------------------------------------------------------------------------------------------===//

static void packRows(KernelBuilder &k, const Tiling &t, bool transposed, const View &weight, Value rows, Value columns,
                     Value first, Value begin, Value end, const View &packed) {
  const int64_t lanes = k.lanes(), panel = t.panel, pair = t.pair;
  auto upTo = [&](Value n, int64_t unit) { return k.div(k.add(n, unit - 1), unit); };
  Value inner = transposed ? columns : rows, units = t.units(k, inner);
  auto at = [&](Value row, Value column) { return weight + k.add(k.mul(row, columns), column); };
  auto unitOf = [&](Value x, Value next) { return pair > 1 ? pairOfBF16(k, x, next) : x; };
  auto store = [&](Value x, const View &to, Value unit, int64_t v) {
    k.store(x, to + k.add(k.mul(unit, panel), v * lanes));
  };
  // Zeroes the units of a panel that hold no element.
  auto pad = [&](const View &to) {
    if (t.products == Products::Tiles)
      k.loop(upTo(inner, pair), units, 1, [&](Value unit) {
        for (int64_t v = 0; v < t.vectors; ++v)
          store(k.splat(0), to, unit, v);
      });
  };

  // Rows of the weight are rows of every panel.
  if (!transposed) {
    Value last = k.min(k.add(first, panel), rows);
    auto packColumns = [&](Value column, bool whole) {
      View to = packed + k.mul(column, units);
      Value lastUnit = upTo(last, pair);
      k.loop(k.div(first, pair), lastUnit, 1, [&](Value unit) {
        Value row = k.mul(unit, pair), next = k.add(row, 1);
        for (int64_t v = 0; v < t.vectors; ++v) {
          Value feature = k.add(column, v * lanes);
          auto rowAt = [&](Value r) {
            if (whole)
              return k.load(at(r, feature), lanes);
            Value given = k.lanesBelow(feature, columns);
            return k.loadMasked(at(r, feature), given);
          };
          Value x = rowAt(row), second;
          if (pair > 1) {
            second = rowAt(k.min(next, k.sub(rows, 1)));
            second = k.select(k.less(next, rows), second, 0);
          }
          store(unitOf(x, second), to, unit, v);
        }
      });
      k.when(k.equal(last, rows), [&] { pad(to); });
    };
    Value whole = k.mul(k.div(end, panel), panel);
    k.loop(begin, whole, panel, [&](Value column) { packColumns(column, true); });
    k.when(k.less(whole, end), [&] { packColumns(whole, false); });
    return;
  }

  // Rows of the weight are columns of one panel: squares of lanes x lanes elements are transposed in registers.
  View to = packed + k.mul(first, units);
  auto packSquares = [&](Value column, bool wholeRows, bool whole) {
    for (int64_t v = 0; v < t.vectors; ++v) {
      SmallVector<Value> square;
      for (int64_t j = 0; j < lanes; ++j) {
        Value row = k.add(first, v * lanes + j),
              x = k.load(at(wholeRows ? row : k.min(row, k.sub(rows, 1)), column), lanes);
        square.push_back(wholeRows ? x : k.select(k.less(row, rows), x, 0));
      }
      k.transpose(square);
      for (int64_t j = 0; j < lanes; j += pair) {
        auto storeUnit = [&] {
          Value second;
          if (pair > 1)
            second = whole ? square[j + 1] : k.select(k.less(k.add(column, j + 1), columns), square[j + 1], 0);
          Value unit = k.add(k.div(column, pair), j / pair);
          store(unitOf(square[j], second), to, unit, v);
        };
        whole ? storeUnit() : k.when(k.less(k.add(column, j), columns), storeUnit);
      }
    }
  };
  auto packColumns = [&](bool wholeRows) {
    Value whole = k.mul(k.div(end, lanes), lanes);
    k.loop(begin, whole, lanes, [&](Value column) { packSquares(column, wholeRows, true); });
    k.when(k.less(whole, end), [&] { packSquares(whole, wholeRows, false); });
  };
  k.when(k.less(k.add(first, panel - 1), rows), [&] { packColumns(true); }, [&] { packColumns(false); });
  k.when(k.equal(end, columns), [&] { pad(to); });
}

void emitPackRows(KernelBuilder &k, Packing packing, const View &weight, const Term &rows, const Term &columns,
                  Value first, const Term &begin, const Term &end, const View &packed) {
  const Tiling t(k, 1, productsFor(k, packing.compute));
  const char *const kind = t.products == Products::Elements ? "" : t.products == Products::Tiles ? "_tiles" : "_pairs";
  const std::string name = llvm::formatv("pack_rows{0}{1}", kind, packing.transposed ? "_transposed" : "");
  k.helper(name, {k.ptr, k.i64, k.i64, k.i64, k.i64, k.i64, k.ptr}, [&](ValueRange a) {
    packRows(k, t, packing.transposed, k.at(a[0]), a[1], a[2], a[3], a[4], a[5], k.at(a[6]));
  });
  k.invoke(name, {weight.data, k.index(rows), k.index(columns), first, k.index(begin), k.index(end), packed.data});
}

// Packs a weight as integers. Each chunk packs one panel.
static PackInfo emitPackIntegers(KernelBuilder &k, const Tiling &t, int64_t outer, int64_t inner) {
  if (isInt8(t.products) && inner > largestInt8Inner)
    throw Error("compile: a product over " + std::to_string(inner) +
                " features cannot be summed exactly in int8; the limit is " + std::to_string(largestInt8Inner) +
                " features");
  View from = k.buffer({PackBuffers::weight, k.element});
  Value begin = k.mul(k.chunk, t.panelWords(inner));
  View to = k.buffer({PackBuffers::packed, k.element}) + begin;
  Value first = k.mul(k.chunk, t.panel);
  Value real = k.min(t.panel, k.sub(outer, first));
  k.loop(0, real, 1, [&](Value j) {
    View row = from + k.mul(k.add(first, j), inner);
    isInt8(t.products) ? packInt8Column(k, t, row, inner, to, j) : packInt4Column(k, t, row, inner, to, j);
  });
  // Columns that do not exist are filled with zeros. Their scale is zero then, too, and so are their sums.
  k.loop(real, t.panel, 1, [&](Value j) {
    k.loop(0, t.panelWords(inner), t.panel, [&](Value word) { k.store(0, (to + k.add(word, j)).as(k.i32)); });
  });
  return {t.panels(outer) * t.panelWords(inner) * k.bytes(), t.panels(outer)};
}

PackInfo emitPackWeight(KernelBuilder &k, RankedTensorType weight, Packing packing) {
  const int64_t rows = weight.getDimSize(0), columns = weight.getDimSize(1);
  const int64_t outer = packing.transposed ? rows : columns, inner = packing.transposed ? columns : rows;
  const Tiling t(k, inner, productsFor(k, packing.compute));
  if (isInteger(t.products))
    return emitPackIntegers(k, t, outer, inner);
  View to = k.buffer({PackBuffers::packed, k.element});
  Value first = k.mul(k.chunk, t.panel);
  emitPackRows(k, packing, k.buffer({PackBuffers::weight, k.element}), rows, columns, first, 0, columns, to);
  return {t.panels(outer) * t.units(inner) * t.panel * k.bytes(), t.panels(rows)};
}

void attachMatrixKernels(MLIRContext &context) {
  attachKernels<emitLinear, emitLinearInputGrad, emitLinearCrossEntropy, emitLinearCrossEntropyWithGrad,
                emitLinearCandidates, emitLinearWeightGrad>(context);
}

} // namespace xfc
