#include "Rows.h"
#include "AttentionTiles.h"
#include "Emitters.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace xfc {

int64_t rowsPerChunk(int64_t features) { return std::clamp<int64_t>(8192 / std::max<int64_t>(features, 1), 1, 64); }

//===--------------------------------------------------------------------------------------------------------===//
// Elementwise
//===--------------------------------------------------------------------------------------------------------===//

Partition CPUMachine::overRows(int64_t width, ArrayRef<BufferIndex> buffers, const ComputeOne &compute,
                               const StartOfRow &start) {
  SmallVector<View> data;
  for (BufferIndex buffer : buffers)
    data.push_back(rowsOf(buffer));
  const int64_t per = rowsPerChunk(width);
  eachRow(per, [&](Value row) {
    SmallVector<RowStart> starts;
    for (auto [buffer, rows] : llvm::zip_equal(buffers, data))
      starts.push_back(start ? start(buffer, rows, row) : RowStart(rows.row(row)));
    features(width, [&](Value f, int64_t used) {
      SmallVector<Value> xs;
      for (const RowStart &from : ArrayRef(starts).drop_back()) {
        Value x = load(from.first + f, lanes());
        xs.push_back(from.counts ? select(from.counts, x, 0) : x);
      }
      View place = starts.back().first + f;
      storePart(spread(compute(xs)), place, used);
    });
  });
  return {Partition::Unit::Rows, per, 1};
}

// Eight Philox counters give the numbers of 64 features (abi.h).
Partition CPUMachine::dropRows(int64_t width, BufferIndex from, double rate, BufferIndex to) {
  const int64_t per = rowsPerChunk(width), whole = width / 64 * 64;
  const View x = rowsOf(from), y = rowsOf(to);
  auto drop = [&](Value row) {
    const View given = x.row(row), dropped = y.row(row);
    const DropoutRow key = dropoutRow(row);
    auto group = [&](Value f, int64_t used) {
      const std::array<Value, 4> words = wordsOf64(key, f);
      for (int64_t i = 0; i < used; i += lanes()) {
        const View place = dropped + f + i;
        Value factor = keepFactor(randomNumbers(words, i), rate);
        storePart(mulf(load(given + f + i, lanes()), factor), place, std::min(lanes(), used - i));
      }
    };
    loop(0, whole, 64, [&](Value f) { group(f, 64); });
    if (whole < width)
      group(index(whole), width - whole);
  };
  when(
      training(), [&] { eachRow(per, drop); },
      [&] { overRows(width, {from, to}, [](ArrayRef<Value> xs) { return xs[0]; }); });
  return {Partition::Unit::Rows, per, 1};
}

// The sum stays in the L1 cache while rows are added to it.
Partition CPUMachine::sumRows(BufferIndex, Value count, const std::function<RowStart(Value)> &rowOf,
                              TypedValue<RankedTensorType> sums) {
  const int64_t width = sums.getType().getDimSize(1);
  Value first = mul(chunk, width);
  const View sum = buffer(sums) + first;
  features(width, [&](Value f, int64_t used) { storePart(0, sum + f, used); });
  loop(0, count, 1, [&](Value i) {
    const RowStart row = rowOf(i);
    when(row.counts, [&] {
      features(width, [&](Value f, int64_t used) {
        const View place = sum + f;
        Value more = load(row.first + f, lanes());
        storePart(addf(load(place, lanes()), more), place, used);
      });
    });
  });
  return {Partition::Unit::One, 1, sums.getType().getDimSize(0)};
}

// Some vectors of columns, whose sums stay in registers.
Partition CPUMachine::sumColumns(int64_t width, Value rows, ArrayRef<View> operands, ArrayRef<Value> results,
                                 const OfRow &ofRow, const AddToSums &add) {
  const int64_t block = 4 * lanes(), chunks = (width + block - 1) / block, count = results.size();
  Value columns = mul(chunk, block);
  auto emit = [&](int64_t used) {
    const int64_t vectors = (used + lanes() - 1) / lanes();
    const Values sums = loop(0, rows, 1, Values(vectors * count, splat(0)), [&](Value row, Values s) {
      const Values own = ofRow(row);
      for (int64_t v = 0; v < vectors; ++v) {
        SmallVector<Value> xs;
        for (const View &operand : operands)
          xs.push_back(load(operand.row(row) + columns + v * lanes(), lanes()));
        llvm::copy(add(own, xs, ArrayRef<Value>(s).slice(v * count, count)), s.begin() + v * count);
      }
      return s;
    });
    for (int64_t i = 0; i < vectors * count; ++i)
      if (Value result = results[i % count]) {
        const int64_t first = i / count * lanes();
        const View place = buffer(result) + columns + first;
        storePart(sums[i], place, std::min(lanes(), used - first));
      }
  };
  if (width % block == 0)
    emit(block);
  else
    when(less(chunk, chunks - 1), [&] { emit(block); }, [&] { emit(width % block); });
  return {Partition::Unit::One, 1, chunks};
}

void CPUMachine::update(ArrayRef<View> blocks, Value from, Value to, const Compute &compute) {
  auto at = [&](Value i, const std::function<void(Value, const View &)> &write) {
    SmallVector<View> places;
    SmallVector<Value> xs;
    for (const View &block : blocks) {
      places.push_back(block + i);
      xs.push_back(load(places.back(), lanes()));
    }
    const Values updated = compute(xs);
    for (size_t j = blocks.size(); j-- > 0;)
      if (updated[j])
        write(updated[j], places[j]);
  };
  Value whole = add(from, mul(div(max(sub(to, from), 0), lanes()), lanes()));
  loop(from, whole, lanes(), [&](Value i) { at(i, [&](Value x, const View &place) { store(x, place); }); });
  when(less(whole, to), [&] {
    Value mask = lanesBelow(whole, to);
    at(whole, [&](Value x, const View &place) { storeMasked(x, place, mask); });
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// Scans
//===--------------------------------------------------------------------------------------------------------===//

namespace {

class ScannedVector final : public ScannedRow {
public:
  ScannedVector(KernelBuilder &k, Value row, Value hasPrevious, Value column, int64_t used)
      : k(k), row(row), hasPrevious(hasPrevious), column(column), used(used) {}

  Value load(const View &rows) override { return at(rows, row); }
  // The sequence's first row is read in place of the one before it, but not used.
  Value loadPrevious(const View &rows) override {
    Value previous = at(rows, k.select(hasPrevious, k.sub(row, 1), row));
    return k.select(hasPrevious, previous, 0);
  }
  void store(Value x, const View &rows) override {
    View place = rows.row(row) + column;
    k.storePart(x, place, used);
  }

private:
  Value at(const View &rows, Value number) { return k.load(rows.row(number) + column, k.lanes()); }
  KernelBuilder &k;
  Value row, hasPrevious, column;
  const int64_t used; // columns, at most a vector
};

} // namespace

// A chunk has some of the columns of one sequence, and keeps their states in registers, a few vectors at a time.
Partition CPUMachine::scan(int64_t width, bool backwards, const LoadRow &load, const ScanStep &step) {
  const int64_t together = 4 * lanes(), perChunk = 4 * together;
  const int64_t whole = width / together * together, parts = (width + perChunk - 1) / perChunk;
  Value sequence = div(chunk, parts), part = rem(chunk, parts);
  const View offsets = numbers(rows(), offsetof(xfc_rows, offsets));
  Value first = loadIndex(offsets + sequence), end = loadIndex(offsets + add(sequence, 1));
  auto columns = [&](Value column, int64_t count) {
    loop(first, end, 1, Values((count + lanes() - 1) / lanes(), splat(0)), [&](Value i, Values states) {
      Value row = backwards ? sub(add(first, sub(end, i)), 1) : i, hasPrevious = less(first, row);
      for (auto [v, state] : llvm::enumerate(states)) {
        const int64_t offset = static_cast<int64_t>(v) * lanes();
        ScannedVector at(*this, row, hasPrevious, add(column, offset), std::min(lanes(), count - offset));
        const Values loaded = load(at);
        state = step(at, loaded, state);
      }
      return states;
    });
  };
  Value from = mul(part, perChunk);
  loop(from, min(add(from, perChunk), whole), together, [&](Value at) { columns(at, together); });
  if (whole < width)
    when(equal(part, parts - 1), [&] { columns(index(whole), width - whole); });
  return {Partition::Unit::Sequences, 1, parts};
}

//===--------------------------------------------------------------------------------------------------------===//
// Pairs
//===--------------------------------------------------------------------------------------------------------===//

namespace {

class PairsInVectors final : public PairsRow {
public:
  PairsInVectors(KernelBuilder &k, HeadOfSequence &at, Value number) : k(k), at(at), number(number), lanes(k.lanes()) {
    head = at.head;
    query = k.add(at.firstQuery, number);
    keys = at.keys;
    perHead = k.mul(at.queries, at.keys);
  }

  View in(BufferIndex buffer, int64_t heads) override { return at.pairsRow(k, buffer, heads, number); }
  void store(ArrayRef<View> operands, const View &to, const ComputeOne &compute) override {
    eachVector(operands, {}, [&](Value j, Value used, ArrayRef<Value> xs, const Values &) -> Values {
      Value x = k.spread(compute(xs));
      View place = to + j;
      k.storeMasked(x, place, used);
      return {};
    });
  }
  Value sum(ArrayRef<View> operands, const View &kept, const ComputeOne &compute) override {
    Value zeros = k.splat(0);
    return k.sum(eachVector(operands, zeros, [&](Value j, Value used, ArrayRef<Value> xs, const Values &s) -> Values {
      Value x = compute(xs);
      if (kept) {
        View place = kept + j;
        k.storeMasked(x, place, used);
      }
      return {k.addf(s[0], k.select(used, x, zeros))};
    })[0]);
  }
  Value largest(const View &row, double least) override {
    Value none = k.splat(least);
    return k.largest(eachVector({row}, none, [&](Value, Value used, ArrayRef<Value> xs, const Values &s) -> Values {
      return {k.maxf(k.select(used, xs[0], none), s[0])};
    })[0]);
  }
  void clear(const View &row) override {
    store({}, row, [&](ArrayRef<Value>) { return k.scalar(0); });
  }
  void storeSeen(const View &from, double hidden, const View &to) override {
    Value zero = k.index(0), first = at.first(k, number, zero), limit = at.limit(k, number, zero);
    Value none = k.splat(hidden);
    eachVector({from}, {}, [&](Value j, Value used, ArrayRef<Value> xs, const Values &) -> Values {
      View place = to + j;
      k.storeMasked(at.seen(k, j, first, limit, xs[0], none), place, used);
      return {};
    });
  }
  // The factors of some keys at a time are in scratch.
  void storeDropped(const View &from, double rate, const View &to) override {
    constexpr int64_t together = 256;
    const View factors = k.scratchRow(together);
    Value training = k.training();
    k.loop(0, keys, together, [&](Value start) {
      Value count = k.min(together, k.sub(keys, start));
      k.when(training, [&] { AttentionTiles(k).keepFactors(factors, at, number, start, count, rate); });
      const View given = from + start, dropped = to + start;
      k.loop(0, count, lanes, [&](Value j) {
        Value used = k.lanesBelow(j, count), x = k.load(given + j, lanes), factor = k.load(factors + j, lanes);
        View place = dropped + j;
        k.storeMasked(k.select(training, k.mulf(x, factor), x), place, used);
      });
    });
  }
  void each(const Term &count, const std::function<void(Value)> &body) override { k.loop(0, count, 1, body); }
  Value sumOfEach(int64_t count, const std::function<Value(Value)> &body) override {
    Value zero = k.scalar(0);
    return k.loop(0, count, 1, ValueRange{zero},
                  [&](Value i, Values s) -> Values { return {k.addf(s[0], body(i))}; })[0];
  }
  std::pair<Value, Value> distanceOf(Value key) override { return at.distanceOf(k, number, key); }
  void once(const std::function<void()> &body) override { body(); }

private:
  // Runs body(the first key, mask of the lanes that belong to the row, operands, state) for each vector of the row.
  Values eachVector(ArrayRef<View> operands, ValueRange state,
                    const std::function<Values(Value, Value, ArrayRef<Value>, const Values &)> &body) {
    return k.loop(0, keys, lanes, state, [&](Value j, const Values &s) {
      Value used = k.lanesBelow(j, keys);
      SmallVector<Value> xs;
      for (const View &operand : operands)
        xs.push_back(k.load(operand + j, lanes));
      return body(j, used, xs, s);
    });
  }

  KernelBuilder &k;
  HeadOfSequence &at;
  Value number; // of the query in its sequence
  const int64_t lanes;
};

} // namespace

Partition CPUMachine::eachPairsRow(int64_t heads, bool cached, const std::function<void(PairsRow &)> &body,
                                   std::optional<uint64_t> reach) {
  SumLanes lanesOfSums(*this);
  HeadOfSequence at = HeadOfSequence::ofChunk(*this, heads);
  at.setReach(*this, reach, cached);
  loop(0, at.queries, 1, [&](Value query) {
    PairsInVectors row(*this, at, query);
    body(row);
  });
  return {Partition::Unit::Sequences, 1, heads};
}

void CPUMachine::eachOfGrid(Value from, Value to, int64_t columns, const std::function<void(Value, Value)> &body) {
  loop(from, to, 1, [&](Value row) { loop(0, columns, 1, [&](Value column) { body(row, column); }); });
}

//===--------------------------------------------------------------------------------------------------------===//
// Elements of tensors
//===--------------------------------------------------------------------------------------------------------===//

namespace {

// Vectors of 8 elements, so that sums in f64 are the same on every instruction set.
class SpreadOverLanes final : public Spread {
public:
  explicit SpreadOverLanes(KernelBuilder &k) : k(k), vectors(k, lanes * k.bytes()) {}

  Values each(Value from, Value to, ValueRange state, const Body &body) override {
    Value whole = k.add(from, k.mul(k.div(k.sub(to, from), lanes), lanes));
    Values before =
        k.loop(from, whole, lanes, state, [&](Value i, Values s) { return body(i, Value(), std::move(s)); });
    return k.loop(whole, to, lanes, before,
                  [&](Value i, Values s) { return body(i, k.lanesBelow(i, to), std::move(s)); });
  }
  Value load(const View &p, Value mask) override { return mask ? k.loadMasked(p, mask) : k.load(p, lanes); }
  void store(Value x, const View &p, Value mask) override { mask ? k.storeMasked(x, p, mask) : k.store(x, p); }
  Value zeros() override { return k.constant(0, VectorType::get({lanes}, k.b.getF64Type())); }
  Value sum(Value x) override { return k.sum(x); }
  Value sumOfSquares(const View &block, Value from, Value to) override {
    Values sums = k.loop(from, to, 4 * lanes, Values(4, zeros()), [&](Value i, Values s) {
      for (int64_t c = 0; c < 4; ++c) {
        Value start = k.add(i, c * lanes), x = k.load(block + k.min(start, to), lanes);
        Value d = k.f64Of(k.select(k.lanesBelow(start, to), x, 0));
        s[c] = k.fma(d, d, s[c]);
      }
      return s;
    });
    Value second = k.addf(sums[2], sums[3]);
    return sum(k.addf(k.addf(sums[0], sums[1]), second));
  }
  Value sumOfBlocks(ArrayRef<std::pair<View, int64_t>> blocks) override {
    Value total = k.constant(0, k.b.getF64Type());
    for (const auto &block : blocks)
      total = k.loop(0, block.second, 1, ValueRange{total},
                     [&](Value i, Values s) -> Values { return {k.addf(s[0], k.load(block.first + i))}; })[0];
    return total;
  }
  void once(const std::function<void()> &body) override { body(); }

private:
  static constexpr int64_t lanes = 8;
  KernelBuilder &k;
  const KernelBuilder::SumLanes vectors;
};

} // namespace

std::unique_ptr<Spread> CPUMachine::overChunk() { return std::make_unique<SpreadOverLanes>(*this); }
std::unique_ptr<Spread> CPUMachine::overRow() { return std::make_unique<SpreadOverLanes>(*this); }
Values CPUMachine::eachRow(Value from, Value to, ValueRange state, const std::function<Values(Value, Values)> &body) {
  return loop(from, to, 1, state, body);
}

//===--------------------------------------------------------------------------------------------------------===//
// Rows that are visited several times
//===--------------------------------------------------------------------------------------------------------===//

Values reduceRow(KernelBuilder &k, int64_t width, ArrayRef<Value> start, const AddVector &body,
                 const std::function<Value(int64_t, Value, Value)> &combine) {
  const int64_t lanes = k.lanes(), n = start.size(), chains = n > 1 ? 2 : 4,
                whole = width / (chains * lanes) * chains * lanes;
  Values state;
  for (int64_t c = 0; c < chains; ++c)
    state.append(start.begin(), start.end());
  auto add = [&](Values &s, int64_t chain, Value f, int64_t used) {
    body(f, used, MutableArrayRef<Value>(s).slice(chain * n, n));
  };
  if (whole)
    state = k.loop(0, whole, chains * lanes, state, [&](Value f, Values s) {
      for (int64_t c = 0; c < chains; ++c)
        add(s, c, k.add(f, c * lanes), lanes);
      return s;
    });
  for (int64_t f = whole, c = 0; f < width; f += lanes, ++c)
    add(state, c, k.index(f), std::min(lanes, width - f));
  for (int64_t half = chains / 2; half >= 1; half /= 2)
    for (int64_t i = 0; i < half * n; ++i)
      state[i] = combine(i % n, state[i], state[half * n + i]);
  state.resize(n);
  return state;
}

namespace {

// A row stays in the L1 cache while it is visited. Sums have the same number of lanes on every instruction set.
template <typename Base> class VectorRows : public Base {
public:
  VectorRows(KernelBuilder &k, int64_t width) : Base(width), k(k), lanesOfSums(k), lanes(k.lanes()) {}

  Partition each(ArrayRef<BufferIndex>, const std::function<void(Value)> &body) override {
    const int64_t per = rowsPerChunk(this->width);
    k.eachRow(per, body);
    return {Partition::Unit::Rows, per, 1};
  }

  Row load(const View &p) override { return {p, {}}; }

  void store(ArrayRef<Row> operands, const View &to, const ComputeOne &compute) override {
    k.features(this->width, [&](Value f, int64_t used) {
      Value x = compute(loaded(operands, f));
      View place = to + f;
      k.storePart(k.spread(x), place, used);
    });
  }

  Values sums(int64_t count, ArrayRef<Row> operands, const Compute &compute) override {
    return accumulate(count, operands, {}, compute);
  }

  void once(const std::function<void()> &body) override { body(); }

protected:
  SmallVector<Value> loaded(ArrayRef<Row> operands, Value f) {
    SmallVector<Value> xs;
    for (const Row &operand : operands)
      xs.push_back(k.load(operand.memory + f, lanes));
    return xs;
  }

  Values accumulate(int64_t count, ArrayRef<Row> operands, ArrayRef<Row> totals, const Compute &compute) {
    Values terms;
    auto add = [&](Value f, int64_t used, MutableArrayRef<Value> sums) {
      SmallVector<Value> xs = loaded(operands, f);
      xs.append(loaded(totals, f));
      terms = compute(xs);
      for (int64_t i = 0; i < count; ++i)
        if (terms[i])
          sums[i] = k.addf(sums[i], k.upTo(used, terms[i], 0));
      for (auto [i, total] : llvm::enumerate(totals)) {
        View place = total.memory + f;
        k.storePart(terms[count + i], place, used);
      }
    };
    Values results = reduceRow(k, this->width, Values(count, k.splat(0)), add,
                               [&](int64_t i, Value x, Value y) { return terms[i] ? k.addf(x, y) : x; });
    for (int64_t i = 0; i < count; ++i)
      results[i] = terms[i] ? k.sum(results[i]) : Value();
    return results;
  }

  KernelBuilder &k;
  const KernelBuilder::SumLanes lanesOfSums;
  const int64_t lanes;
};

class ShortVectorRows final : public VectorRows<ShortRows> {
public:
  using VectorRows::VectorRows;

  Value largest(ArrayRef<Row> operands, const ComputeOne &compute) override {
    Value none = k.splat(0);
    return k.largest(k.features(width, none, [&](Value f, int64_t used, const Values &s) -> Values {
      Value x = k.upTo(used, compute(loaded(operands, f)), 0);
      return {k.maxf(x, s[0])};
    })[0]);
  }

  // What is stored rounded, or not at all, stays in scratch.
  Row keep(ArrayRef<Row> operands, const View &to, const ComputeOne &compute) override {
    const bool inScratch = !to || to.element != k.element;
    View at = inScratch ? k.scratchRow(width) : to;
    k.features(width, [&](Value f, int64_t used) {
      Value x = compute(loaded(operands, f));
      View place = at + f;
      k.storePart(x, place, used);
      if (to && inScratch) {
        View rounded = to + f;
        k.storePart(x, rounded, used);
      }
    });
    return {at, {}};
  }

  // The totals stay in the L1 cache, too.
  Partition eachOfPart(int64_t parts, ArrayRef<BufferIndex>, ArrayRef<BufferIndex> sums,
                       const PartBody &body) override {
    SmallVector<Row> totals;
    Value first = k.mul(k.chunk, width);
    for (BufferIndex sum : sums)
      totals.push_back({k.buffer(sum) + first, {}});
    k.features(width, [&](Value f, int64_t used) {
      for (const Row &total : totals)
        k.storePart(0, total.memory + f, used);
    });
    auto begin = [&](Value part) { return k.div(k.mul(part, k.rowCount()), parts); };
    Value end = begin(k.add(k.chunk, 1));
    k.loop(begin(k.chunk), end, 1, [&](Value row) { body(row, totals); });
    return {Partition::Unit::One, 1, parts};
  }

  Values sumsAndTotals(int64_t count, ArrayRef<Row> operands, MutableArrayRef<Row> totals,
                       const Compute &compute) override {
    return accumulate(count, operands, totals, compute);
  }
};

class LongVectorRows final : public VectorRows<LongRows> {
public:
  using VectorRows::VectorRows;

  std::pair<Value, Value> logSumExp(const Row &row, bool withSum) override {
    return emitLogSumExp(k, row.memory, width, withSum);
  }

  void storeExceptAt(Value column, Value there, Value elsewhere, ArrayRef<Row> operands, const View &to,
                     const ComputeOne &compute) override {
    // An operand may be overwritten by the row, so the exception is computed first.
    Value known = k.max(column, 0);
    SmallVector<Value> xs;
    for (const Row &operand : operands)
      xs.push_back(k.load(operand.memory + known));
    xs.push_back(there);
    Value exception = compute(xs);
    store(operands, to, [&](ArrayRef<Value> usual) {
      SmallVector<Value> all(usual);
      all.push_back(elsewhere);
      return compute(all);
    });
    k.when(k.less(-1, column), [&] {
      View place = to + column;
      k.store(exception, place);
    });
  }

  void subtractAt(Value column, Value amount, const View &to) override {
    View place = to + column;
    k.store(k.subf(k.load(place), amount), place);
  }
};

} // namespace

std::unique_ptr<ShortRows> CPUMachine::shortRows(int64_t width) {
  return std::make_unique<ShortVectorRows>(*this, width);
}
std::unique_ptr<LongRows> CPUMachine::longRows(int64_t width) { return std::make_unique<LongVectorRows>(*this, width); }

} // namespace xfc
