// Products of rows with a weight, and the gradients of their rows.
#include "CPU/Products/Product.h"
#include "Emitters.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace xfc {
namespace {

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
    Value limit = k.i32Of(static_cast<int32_t>(xfc_threshold(rate) << 16));
    threshold = k.broadcast(k.select(k.training(), limit, 0));
    factor = k.broadcast(k.keptFactor(rate));
  }
  KernelBuilder::DropoutRow key(Value row) {
    if (kept)
      return {};
    return k.dropoutRow(row);
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
      const std::array<Value, 4> ofGroup = k.wordsOf64(key(row), feature);
      for (int64_t i = 0; i < 4; ++i) {
        Value mask = k.notLess(k.randomNumbers(ofGroup, i * lanes), threshold);
        Value sixteen = vector::ExtractOp::create(
            k.b, vector::BitCastOp::create(k.b, VectorType::get({1}, k.b.getI16Type()), mask), 0);
        Value wide = arith::ExtUIOp::create(k.b, k.i32, sixteen);
        if (i % 2 == 0) {
          word = wide;
          continue;
        }
        Value both = arith::OrIOp::create(k.b, word, arith::ShLIOp::create(k.b, wide, k.i32Of(16)));
        LLVM::StoreOp::create(k.b, both, (words + i / 2).data);
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
  SmallVector<Value> factors(const KernelBuilder::DropoutRow &key, Value feature, int64_t used) {
    SmallVector<Value> result((used + k.lanes() - 1) / k.lanes(), factor);
    if (kept)
      return result;
    const std::array<Value, 4> words = k.wordsOf64(key, feature);
    for (auto [i, each] : llvm::enumerate(result))
      each = k.select(k.notLess(k.randomNumbers(words, static_cast<int64_t>(i) * k.lanes()), threshold), factor, 0);
    return result;
  }
};

// With as many chunks, up to eight threads have similar shares of the work.
constexpr int64_t enoughChunks = 16;

// Stores vectors of y in the part of the columns that they belong to: the rows of the result, or the rows of the caches
// that the hypothesis writes.
struct ColumnParts {
  struct Part {
    OpResult result;
    int64_t begin, width;
  };
  KernelBuilder &k;
  SmallVector<Part> parts;

  ColumnParts(KernelBuilder &k, LinearToCacheOp op) : k(k) {
    int64_t begin = 0;
    for (OpResult result : op->getResults()) {
      if (!result.use_empty())
        parts.push_back({result, begin, widthOf(result)});
      begin += widthOf(result);
    }
  }
  // The places of a row, one for each part.
  SmallVector<View> placesOf(Value row) const {
    Value slot = k.loadIndex(k.numbers(k.shape(), offsetof(xfc_shape, slots)) + row);
    return llvm::map_to_vector(parts, [&](const Part &part) { return k.rowOf(part.result, part.begin ? slot : row); });
  }
  // `feature` is a multiple of the vector's length, which divides columnsTogether.
  void store(Value y, ArrayRef<View> places, Value feature, int64_t used) const {
    for (auto [part, place] : llvm::zip_equal(parts, places)) {
      Value own = k.sub(feature, part.begin);
      k.when(k.within(own, k.index(part.width)), [&] { k.storePart(y, place + own, used); });
    }
  }
};

// The last `extras` operands are the extras of the epilogue, if there is one.
KernelInfo emitProduct(KernelBuilder &k, Operation *op, BufferIndex rows, BufferIndex weight,
                       std::optional<BufferIndex> biases, int64_t extras, int64_t inner, int64_t columns,
                       Region *epilogue) {
  const int64_t all = (columns + Tiling::group - 1) / Tiling::group;
  // At least two chunks per block of rows if there are enough columns, so that a few rows keep two threads busy.
  const int64_t groups = std::clamp<int64_t>((all + 1) / 2, 1, 4), slabs = (all + groups - 1) / groups;
  Tiling t(k, inner, productsFor(k, cast<ProductOpInterface>(op).getCompute()));
  if (Product::readInPlace(t, rows, inner))
    t.readInPlace();
  Product product(k, t, rows, weight, inner, columns, groups);
  const int64_t firstExtra = op->getNumOperands() - extras;

  Value row, group, end, isLast, holds;
  if (t.whole) {
    // Each thread that takes slabs of a block converts its rows, so there are only as many slabs as it takes to make
    // enough chunks. The chunks after them are empty.
    Value blocks = k.div(k.add(k.rowCount(), t.block - 1), t.block);
    Value used = k.min(slabs, k.div(k.add(blocks, enoughChunks - 1), blocks));
    Value ofSlab = k.div(k.add(used, all - 1), used);
    struct Part {
      Value block, group; // of rows; the first one of columns
    };
    auto partOf = [&](Value chunk) -> Part {
      Value block = k.div(chunk, used), slab = k.sub(chunk, k.mul(block, used));
      return {block, k.mul(slab, ofSlab)};
    };
    const Part part = partOf(k.chunk), before = partOf(k.previous);
    row = k.mul(part.block, t.block);
    group = part.group, end = k.min(all, k.add(group, ofSlab));
    isLast = k.less(all - 1, end);
    // An empty chunk has left nothing.
    Value isSame = k.equal(before.block, part.block), wasEmpty = k.less(all - 1, before.group);
    holds = k.select(wasEmpty, k.boolean(false), isSame);
  } else {
    Value slab = k.rem(k.chunk, slabs), block = k.div(k.chunk, slabs);
    row = k.mul(block, t.block);
    group = k.mul(slab, groups), end = k.min(all, k.add(group, groups));
    isLast = k.equal(slab, slabs - 1);
    holds = k.equal(k.div(k.previous, slabs), block);
  }
  Value count = k.min(t.block, k.sub(k.rowCount(), row));
  View bias = biases ? k.buffer(*biases) : View();
  std::optional<Dropout> dropout;
  const bool inHalves = isTiled(t.products);
  int64_t scratch = product.scratchBytes();
  const bool hasEpilogue = epilogue && !epilogue->empty();
  std::optional<ColumnParts> parts;
  if (auto intoCaches = dyn_cast<LinearToCacheOp>(op))
    parts.emplace(k, intoCaches);
  if (DropoutOp drops = hasEpilogue ? dropoutOf(*epilogue) : DropoutOp()) {
    dropout.emplace(k, drops, k.scratch + scratch / k.bytes());
    if (inHalves && !dropout->kept)
      scratch += t.block * 2 * k.bytes();
  }
  // The next slab has the same rows.
  Value next = k.select(isLast, k.add(row, t.block), row);
  SmallVector<Product::Touched> touched;
  for (int64_t e = 0; e < extras; ++e)
    touched.push_back({k.rowsOf(op->getOpOperand(firstExtra + e)), false});
  // If each result takes only a part of the columns, none is prefetched: the columns of another part would lie beyond
  // the end of its rows.
  if (!parts)
    for (OpResult result : op->getResults())
      if (!result.use_empty())
        touched.push_back({k.rowsOf(result), true});
  Product::Begin begin = [&](Value at) -> Product::Finish {
    SmallVector<View> inputs, outputs;
    for (int64_t e = 0; e < extras; ++e)
      inputs.push_back(k.rowOf(op->getOpOperand(firstExtra + e), at));
    if (parts)
      outputs = parts->placesOf(at);
    else
      for (OpResult result : op->getResults())
        outputs.push_back(result.use_empty() ? View() : k.rowOf(result, at));
    KernelBuilder::DropoutRow key;
    if (dropout && !inHalves)
      key = dropout->key(at);
    return [=, &k, &parts, &dropout](Value feature, const Product::Vector &products, int64_t used, int64_t) {
      SmallVector<Value> factors;
      if (dropout)
        factors =
            inHalves ? dropout->factorsOfHalf(at, k.sub(at, row), feature, used) : dropout->factors(key, feature, used);
      for (int64_t i = 0; i < used; i += k.lanes()) {
        Value y = products(i);
        if (bias)
          y = k.addf(y, k.load(bias + feature + i, k.lanes()));
        if (parts) {
          parts->store(y, outputs, k.add(feature, i), std::min(k.lanes(), used - i));
          continue;
        }
        SmallVector<Value> results = {y};
        if (hasEpilogue) {
          SmallVector<Value> arguments = {y};
          for (const View &input : inputs)
            arguments.push_back(k.load(input + feature + i, k.lanes()));
          results = evaluateEpilogue(k, *epilogue, arguments, dropout ? factors[i / k.lanes()] : Value());
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
      product.compute(row, count, group, end, next, begin, touched, holds);
    });
  } else {
    configureTiles(k, t, count);
    product.compute(row, count, group, end, next, begin, touched, holds);
  }
  return {{Partition::Unit::Rows, t.block, slabs}, scratch};
}

} // namespace

static KernelInfo emitLinear(KernelBuilder &k, LinearOp op) {
  RankedTensorType weight = op.getWeight().getType();
  return emitProduct(k, op, op.getXMutable(), op.getWeightMutable(),
                     op.getBias() ? std::optional<BufferIndex>(op.getBiasMutable()) : std::nullopt,
                     op.getExtras().size(), weight.getDimSize(1), weight.getDimSize(0), &op.getEpilogue());
}

static KernelInfo emitLinearToCache(KernelBuilder &k, LinearToCacheOp op) {
  RankedTensorType weight = op.getWeight().getType();
  return emitProduct(k, op, op.getXMutable(), op.getWeightMutable(),
                     op.getBias() ? std::optional<BufferIndex>(op.getBiasMutable()) : std::nullopt, /*extras=*/0,
                     weight.getDimSize(1), weight.getDimSize(0), /*epilogue=*/nullptr);
}

static KernelInfo emitLinearInputGrad(KernelBuilder &k, LinearInputGradOp op) {
  RankedTensorType weight = op.getWeight().getType();
  return emitProduct(k, op, op.getDyMutable(), op.getWeightMutable(), std::nullopt, op.getExtras().size(),
                     weight.getDimSize(0), weight.getDimSize(1), &op.getEpilogue());
}

void attachLinearKernels(MLIRContext &context) {
  attachKernels<emitLinear, emitLinearToCache, emitLinearInputGrad>(context);
}

} // namespace xfc
