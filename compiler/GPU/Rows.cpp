// Rows on a GPU (Codegen/Machine.h): the features of a row are spread over the threads that share it.
#include "Rows.h"
#include "AttentionTiles.h"
#include "Codegen/Softmax.h"
#include "Dialect/XFC.h"
#include <utility>

using namespace mlir;

namespace xfc::gpu {

int64_t rowsPerBlock(int64_t width) { return std::max<int64_t>(1, 4096 / width); }

void eachGroup(KernelBuilder &k, int64_t per, int64_t groups, const std::function<void(Value, Value)> &body) {
  Value from = k.mul(k.chunk, per), count = k.max(k.min(per, k.sub(k.rowCount(), from)), 0);
  k.acrossThreads(k.truncated(k.mul(count, groups)), [&](Value i) {
    Value group = k.rem(i, groups);
    body(k.add(from, k.i64Of(k.div(i, groups))), group);
  });
}

Partition KernelBuilder::overRows(int64_t width, ArrayRef<BufferIndex> buffers, const ComputeOne &compute,
                                  const StartOfRow &start) {
  const int64_t per = rowsPerBlock(width);
  vectorized(buffers, width, [&](int64_t n) {
    eachGroup(*this, per, width / n, [&](Value row, Value group) {
      auto at = [&](BufferIndex i) -> RowStart {
        Value f = mul(group, n);
        const View rows = rowsOf(i);
        RowStart begin = start ? start(i, rows, row) : RowStart(rows.row(row));
        return {begin.first + f, begin.counts};
      };
      SmallVector<Values> xs;
      for (BufferIndex operand : buffers.drop_back()) {
        const RowStart from = at(operand);
        xs.push_back(from.counts ? loadIf(from.counts, from.first, n) : load(from.first, n));
      }
      Values ys;
      for (int64_t j = 0; j < n; ++j)
        ys.push_back(compute(llvm::map_to_vector(xs, [&](const Values &x) { return x[j]; })));
      store(ys, at(buffers.back()).first);
    });
  });
  return {Partition::Unit::Rows, per, 1};
}

// One Philox counter gives the random numbers of eight features, 8 apart (abi.h). A thread takes n adjacent counters of
// the eight that cover 64 features.
Partition KernelBuilder::dropRows(int64_t width, BufferIndex from, double rate, BufferIndex to) {
  const int64_t per = rowsPerBlock(width);
  auto drop = [&](int64_t n) {
    const int64_t groups = 8 / n;
    eachGroup(*this, per, (width + 63) / 64 * groups, [&](Value row, Value group) {
      const DropoutKey key = dropoutKeyOf(dropoutId(), row);
      Value block = div(group, groups), first = mul(rem(group, groups), n);
      SmallVector<std::array<Value, 4>> words;
      for (int64_t i = 0; i < n; ++i)
        words.push_back(philox(key, add(add(mul(block, 8), first), i)));
      for (int64_t begin = 0; begin < 64; begin += 8) {
        Value f = add(add(mul(block, 64), first), begin);
        auto part = [&] {
          Values xs = load(rowOf(from, row) + f, n);
          for (int64_t i = 0; i < n; ++i)
            xs[i] = mulf(xs[i], keepFactor(numberOf(words[i], begin), rate));
          store(xs, rowOf(to, row) + f);
        };
        if (width % 64 == 0)
          part();
        else
          when(less(f, width), part);
      }
    });
  };
  when(
      training(), [&] { vectorized({from, to}, width, drop); },
      [&] { overRows(width, {from, to}, [](ArrayRef<Value> xs) { return xs[0]; }); });
  return {Partition::Unit::Rows, per, 1};
}

Partition KernelBuilder::sumRows(BufferIndex buffer, Value count, const std::function<RowStart(Value)> &rowOf,
                                 TypedValue<RankedTensorType> sums) {
  const int64_t width = sums.getType().getDimSize(1);
  vectorized({buffer, sums}, width, [&](int64_t n) {
    acrossThreads(width / n, [&](Value group) {
      Value f = mul(group, n);
      Values sum = loop(0, count, 1, Values(n, scalar(0)), [&](Value i, Values s) {
        const RowStart row = rowOf(i);
        auto withRow = [&]() -> Values {
          Values x = load(row.first + f, n), next;
          for (int64_t j = 0; j < n; ++j)
            next.push_back(addf(s[j], x[j]));
          return next;
        };
        return choose(row.counts, withRow, [&] { return s; });
      });
      Value before = mul(chunk, width);
      store(sum, this->buffer(sums) + before + f);
    });
  });
  return {Partition::Unit::One, 1, sums.getType().getDimSize(0)};
}

// A block owns 8 columns (32 bytes of each row). A thread takes rows at a fixed stride, the number of rows that the
// block takes at once, and sums them in order. Lanes are then added in a fixed tree, and warps in order.
Partition KernelBuilder::sumColumns(int64_t width, Value rows, ArrayRef<View> operands, ArrayRef<Value> results,
                                    const OfRow &ofRow, const AddToSums &add) {
  constexpr int64_t columns = 8;
  const int64_t count = results.size(), all = count * columns;
  threads = 1024;
  const View parts = at(shared(warps() * all * bytes()));
  vectorized(operands, width, [&](int64_t n) {
    const int64_t across = columns / n, together = threads / across;
    Value f = mul(bitAnd(thread(), across - 1), n), ofThread = i64Of(f),
          column = this->add(mul(chunk, columns), ofThread);
    const Values none(count * n, scalar(0));
    auto addRow = [&](Value row, Values s) {
      const Values own = ofRow(row);
      SmallVector<Values> xs;
      for (const View &operand : operands)
        xs.push_back(load(operand.row(row) + column, n));
      for (int64_t j = 0; j < n; ++j)
        llvm::copy(add(own, llvm::map_to_vector(xs, [&](const Values &x) { return x[j]; }),
                       ArrayRef<Value>(s).slice(j * count, count)),
                   s.begin() + j * count);
      return s;
    };
    Values sums = choose(
        less(column, width), [&] { return loop(i64Of(div(thread(), across)), rows, together, none, addRow); },
        [&] { return Values(count * n, scalar(0)); });
    // Lanes that have the same columns are `across` apart.
    for (Value &sum : sums)
      for (int64_t mask = warpSize / 2; mask >= across; mask /= 2)
        sum = addf(sum, shuffleXor(sum, mask));
    when(less(lane(), across), [&] {
      for (int64_t i = 0; i < count * n; ++i)
        CodeBuilder::store(sums[i], parts + this->add(this->add(mul(warp(), all), f), i % count * columns + i / count));
    });
  });
  barrier();
  // One thread for each column of each result.
  Value which = div(thread(), columns), ofThread = i64Of(rem(thread(), columns)),
        column = this->add(mul(chunk, columns), ofThread), isColumn = less(column, width);
  when(both(less(thread(), all), isColumn), [&] {
    Value own = thread(), zero = scalar(0);
    Value total = loop(i32Of(0), warps(), 1, {zero}, [&](Value warp, Values s) -> Values {
      return {addf(s[0], CodeBuilder::load(parts + this->add(mul(warp, all), own)))};
    })[0];
    for (auto [i, result] : llvm::enumerate(results))
      if (result)
        when(equal(which, static_cast<int64_t>(i)),
             [&, result = result] { CodeBuilder::store(total, buffer(result) + column); });
  });
  return {Partition::Unit::One, 1, (width + columns - 1) / columns};
}

void KernelBuilder::update(ArrayRef<View> blocks, Value from, Value to, const Compute &compute) {
  overSpan(blocks, from, to, {}, [&](Value i, int64_t n, const Values &) -> Values {
    SmallVector<Values> all;
    for (const View &block : blocks)
      all.push_back(load(block + i, n));
    SmallVector<bool> changed(blocks.size());
    for (int64_t j = 0; j < n; ++j) {
      const Values updated = compute(llvm::map_to_vector(all, [&](const Values &x) { return x[j]; }));
      for (size_t block = 0; block < blocks.size(); ++block)
        if (updated[block]) {
          all[block][j] = updated[block];
          changed[block] = true;
        }
    }
    for (size_t block = blocks.size(); block-- > 0;)
      if (changed[block])
        store(all[block], blocks[block] + i);
    return {};
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// Scans
//===--------------------------------------------------------------------------------------------------------===//

namespace {

class ScannedColumn final : public ScannedRow {
public:
  ScannedColumn(KernelBuilder &k, Value row, Value isThere, Value hasPrevious, Value column)
      : k(k), row(row), isThere(isThere), hasPrevious(hasPrevious), column(column) {}

  Value load(const View &rows) override { return k.loadIf(isThere, rows.row(row) + column, 1)[0]; }
  Value loadPrevious(const View &rows) override {
    return k.loadIf(hasPrevious, rows.row(k.sub(row, 1)) + column, 1)[0];
  }
  void store(Value x, const View &rows) override { k.storeIf(isThere, {x}, rows.row(row) + column); }

private:
  KernelBuilder &k;
  Value row, isThere; // whether there is such a row
  Value hasPrevious, column;
};

} // namespace

// A thread has one column, whose state stays in a register. Several rows are read before the first of them is computed,
// because a row's state waits for that of the row before it, but its operands need not.
Partition KernelBuilder::scan(int64_t width, bool backwards, const LoadRow &load, const ScanStep &step) {
  constexpr int64_t ahead = 4;
  threads = 128;
  const int64_t parts = (width + threads - 1) / threads;
  Value sequence = div(chunk, parts), ofThread = i64Of(thread()),
        column = add(mul(rem(chunk, parts), threads), ofThread);
  Value sequences = field(rows(), offsetof(xfc_rows, sequences), i64);
  const View offsets = numbers(rows(), offsetof(xfc_rows, offsets));
  Value isColumn = less(column, width);
  when(both(less(sequence, sequences), isColumn), [&] {
    Value first = loadIndex(offsets + sequence), end = loadIndex(offsets + add(sequence, 1));
    loop(first, end, ahead, ValueRange{scalar(0)}, [&](Value from, Values state) {
      SmallVector<ScannedColumn> several;
      SmallVector<Values> loaded;
      for (int64_t i = 0; i < ahead; ++i) {
        Value at = add(from, i), row = backwards ? sub(add(first, sub(end, at)), 1) : at;
        Value isThere = less(at, end);
        several.emplace_back(*this, row, isThere, both(isThere, less(first, row)), column);
        loaded.push_back(load(several.back()));
      }
      for (auto [row, values] : llvm::zip_equal(several, loaded))
        state[0] = step(row, values, state[0]);
      return state;
    });
  });
  return {Partition::Unit::Sequences, 1, parts};
}

//===--------------------------------------------------------------------------------------------------------===//
// Pairs
//===--------------------------------------------------------------------------------------------------------===//

namespace {

// A warp has the row.
class PairsInLanes final : public PairsRow {
public:
  PairsInLanes(KernelBuilder &k, HeadOfSequence &at, Value number) : k(k), at(at), number(number) {
    head = at.head;
    query = k.add(at.firstQuery, k.i64Of(number));
    keys = k.i64Of(at.keys);
    perHead = k.mul(k.i64Of(at.queries), keys);
  }

  View in(BufferIndex buffer, int64_t heads) override { return at.pairsRow(k, buffer, heads, number); }
  void store(ArrayRef<View> operands, const View &to, const ComputeOne &compute) override {
    overLanes(at.keys, {}, [&](Value j, const Values &) -> Values {
      Value x = compute(loaded(operands, j));
      View place = to + j;
      k.store(x, place);
      return {};
    });
  }
  Value sum(ArrayRef<View> operands, const View &kept, const ComputeOne &compute) override {
    Value zero = k.scalar(0);
    return k.warpSum(overLanes(at.keys, zero, [&](Value j, const Values &s) -> Values {
      Value x = compute(loaded(operands, j));
      if (kept) {
        View place = kept + j;
        k.store(x, place);
      }
      return {k.addf(s[0], x)};
    })[0]);
  }
  Value largest(const View &row, double least) override {
    Value none = k.scalar(least);
    return k.warpMax(overLanes(at.keys, none,
                               [&](Value j, const Values &s) -> Values { return {k.maxf(k.load(row + j), s[0])}; })[0]);
  }
  void clear(const View &row) override {
    store({}, row, [&](ArrayRef<Value>) { return k.scalar(0); });
    AttentionTiles(k).syncWarp();
  }
  void storeSeen(const View &from, double hidden, const View &to) override {
    Value limit = at.limit(k, number), first = at.reach ? at.first(k, number) : Value();
    overLanes(at.keys, {}, [&](Value key, const Values &) -> Values {
      Value given = k.load(from + key), x = k.select(k.less(key, limit), given, hidden);
      if (first)
        x = k.select(k.less(key, first), hidden, x);
      View place = to + key;
      k.store(x, place);
      return {};
    });
  }
  void storeDropped(const View &from, double rate, const View &to) override {
    Value training = k.training();
    overLanes(at.keys, {}, [&](Value key, const Values &) -> Values {
      Value x = k.load(from + key);
      auto dropped = [&]() -> Values {
        CodeBuilder::DropoutKey dropout = k.dropoutKeyOf(k.dropoutId(), query);
        dropout.head = k.truncated(k.add(head, 1));
        Value position = at.keyPosition(k, key);
        std::array<Value, 4> words = k.philox(dropout, k.counterOf(position));
        return {k.mulf(x, k.keepFactor(k.numberOf(words, position), rate))};
      };
      View place = to + key;
      k.store(k.choose(training, dropped, [&]() -> Values { return {x}; })[0], place);
      return {};
    });
  }
  void each(const Term &count, const std::function<void(Value)> &body) override {
    overLanes(k.truncated(k.index(count)), {}, [&](Value i, const Values &) -> Values {
      body(k.i64Of(i));
      return {};
    });
  }
  Value sumOfEach(int64_t count, const std::function<Value(Value)> &body) override {
    Value zero = k.scalar(0);
    return k.warpSum(overLanes(k.i32Of(static_cast<int32_t>(count)), zero, [&](Value i, const Values &s) -> Values {
      return {k.addf(s[0], body(k.i64Of(i)))};
    })[0]);
  }
  std::pair<Value, Value> distanceOf(Value key) override { return at.distanceOf(k, number, k.truncated(key)); }
  void once(const std::function<void()> &body) override { k.when(k.equal(k.lane(), 0), body); }

private:
  Values overLanes(Value count, ValueRange state, const std::function<Values(Value, const Values &)> &body) {
    return k.loop(k.lane(), count, KernelBuilder::warpSize, state, body);
  }
  SmallVector<Value> loaded(ArrayRef<View> operands, Value j) {
    SmallVector<Value> xs;
    for (const View &operand : operands)
      xs.push_back(k.load(operand + j));
    return xs;
  }

  KernelBuilder &k;
  HeadOfSequence &at;
  Value number; // of the query in its sequence
};

} // namespace

Partition KernelBuilder::eachPairsRow(int64_t heads, bool cached, const std::function<void(PairsRow &)> &body,
                                      std::optional<uint64_t> reach) {
  return eachQuery(*this, heads, [&](HeadOfSequence &at, Value query) {
    at.setReach(*this, reach, cached);
    PairsInLanes row(*this, at, query);
    body(row);
  });
}

void KernelBuilder::eachOfGrid(Value from, Value to, int64_t columns, const std::function<void(Value, Value)> &body) {
  acrossThreads(truncated(mul(max(sub(to, from), 0), columns)), [&](Value i) {
    Value row = add(from, i64Of(div(i, columns)));
    body(row, i64Of(rem(i, columns)));
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// Elements of tensors
//===--------------------------------------------------------------------------------------------------------===//

namespace {

// Over the block's threads, or over a warp's lanes.
class SpreadOverThreads final : public Spread {
public:
  SpreadOverThreads(KernelBuilder &k, bool byWarp) : k(k), byWarp(byWarp) {}

  Values each(Value from, Value to, ValueRange state, const Body &body) override {
    Value own = k.i64Of(member());
    return k.loop(k.add(from, own), to, byWarp ? KernelBuilder::warpSize : k.threads, state,
                  [&](Value i, Values s) { return body(i, Value(), std::move(s)); });
  }
  Value load(const View &p, Value) override { return k.load(p); }
  void store(Value x, const View &p, Value) override { k.store(x, p); }
  Value zeros() override { return k.constant(0, k.b.getF64Type()); }
  Value sum(Value x) override { return byWarp ? k.warpSum(x) : k.blockSum(x); }
  Value sumOfSquares(const View &block, Value from, Value to) override {
    return sum(k.overSpan({block}, from, to, {zeros()}, [&](Value i, int64_t n, Values s) {
      for (Value x : k.load(block + i, n)) {
        Value wide = k.f64Of(x);
        s[0] = k.fma(wide, wide, s[0]);
      }
      return s;
    })[0]);
  }
  // With as many threads as one block can have.
  Value sumOfBlocks(ArrayRef<std::pair<View, int64_t>> blocks) override {
    k.threads = 1024;
    Value ofThread = zeros(), first = k.index(0);
    for (const auto &block : blocks)
      ofThread = each(first, k.index(block.second), {ofThread},
                      [&](Value i, Value, Values s) -> Values { return {k.addf(s[0], k.load(block.first + i))}; })[0];
    return sum(ofThread);
  }
  void once(const std::function<void()> &body) override { k.when(k.equal(member(), 0), body); }

private:
  Value member() { return byWarp ? k.lane() : k.thread(); }
  KernelBuilder &k;
  const bool byWarp;
};

} // namespace

std::unique_ptr<Spread> KernelBuilder::overChunk() { return std::make_unique<SpreadOverThreads>(*this, false); }
std::unique_ptr<Spread> KernelBuilder::overRow() { return std::make_unique<SpreadOverThreads>(*this, true); }
Values KernelBuilder::eachRow(Value from, Value to, ValueRange state,
                              const std::function<Values(Value, Values)> &body) {
  return loop(add(from, i64Of(warp())), to, warps(), state, body);
}

//===--------------------------------------------------------------------------------------------------------===//
// Rows that are visited several times
//===--------------------------------------------------------------------------------------------------------===//

std::unique_ptr<ShortRows> KernelBuilder::shortRows(int64_t width) {
  return std::make_unique<RowsInRegisters>(*this, width);
}
std::unique_ptr<LongRows> KernelBuilder::longRows(int64_t width) {
  return std::make_unique<RowsInMemory>(*this, width);
}

RowTeam::RowTeam(KernelBuilder &k, int64_t width, int64_t threads, bool byWarp)
    : width(width), k(k), team(byWarp ? KernelBuilder::warpSize : threads) {
  k.threads = threads;
}

void RowTeam::vectorized(ArrayRef<BufferIndex> buffers, const std::function<void()> &body) {
  k.vectorized(buffers, width, [&](int64_t vector) {
    n = vector;
    body();
  });
}

Partition RowTeam::eachRow(ArrayRef<BufferIndex> buffers, const std::function<void(Value)> &body) {
  vectorized(buffers, [&] {
    Value row = k.mul(k.chunk, teams()), count = k.rowCount();
    if (isWarp())
      row = k.add(row, k.i64Of(k.warp()));
    k.when(k.less(row, count), [&] { body(row); });
  });
  return {Partition::Unit::Rows, teams(), 1};
}

Values RowTeam::someRows(Value from, Value to, ValueRange state, const std::function<Values(Value, Values)> &body) {
  return k.loop(teams() > 1 ? k.add(from, k.i64Of(k.warp())) : from, to, teams(), state, body);
}

Value RowTeam::member() { return isWarp() ? k.lane() : k.thread(); }
Value RowTeam::across(Value v, const KernelBuilder::Combine &combine) {
  return isWarp() ? k.acrossLanes(v, combine) : k.acrossBlock(v, combine);
}
Value RowTeam::sum(Value v) {
  return across(v, [&](Value x, Value y) { return k.addf(x, y); });
}
Value RowTeam::max(Value v) {
  return across(v, [&](Value x, Value y) { return k.maxf(x, y); });
}
void RowTeam::once(const std::function<void()> &body) { k.when(k.equal(member(), 0), body); }

// At most 32 features per thread, unless a row is too long for that: two rows then fit into registers beside the
// intermediate values.
RowsInRegisters::RowsInRegisters(KernelBuilder &k, int64_t width)
    : ShortRows(width), RowTeam(k, width, width <= int64_t{256} * 32 ? 256 : 1024, width <= int64_t{32} * 32) {}

Partition RowsInRegisters::each(ArrayRef<BufferIndex> buffers, const std::function<void(Value)> &body) {
  return eachRow(buffers, body);
}

// A block computes one part. Each of its warps (or the whole block, if rows are long) sums rows in ascending order in
// registers; then the sums of the warps are added in the order of the warps.
Partition RowsInRegisters::eachOfPart(int64_t parts, ArrayRef<BufferIndex> buffers, ArrayRef<BufferIndex> sums,
                                      const PartBody &body) {
  SmallVector<BufferIndex> vectors(buffers);
  vectors.append(sums.begin(), sums.end());
  auto begin = [&](Value part) { return k.div(k.mul(part, k.rowCount()), parts); };
  vectorized(vectors, [&] {
    const int64_t each = groups() * n;
    const Values none(each * sums.size(), k.scalar(0));
    Value end = begin(k.add(k.chunk, 1));
    Values totals = someRows(begin(k.chunk), end, none, [&](Value row, const Values &before) {
      SmallVector<Row> ofRow;
      for (size_t i = 0; i < sums.size(); ++i)
        ofRow.push_back({{}, Values(ArrayRef<Value>(before).slice(i * each, each))});
      body(row, ofRow);
      Values after;
      for (const Row &total : ofRow)
        after.append(total.registers.begin(), total.registers.end());
      return after;
    });
    for (auto [i, sum] : llvm::enumerate(sums)) {
      Value before = k.mul(k.chunk, width);
      storeSum(ArrayRef<Value>(totals).slice(i * each, each), k.buffer(sum) + before);
    }
  });
  return {Partition::Unit::One, 1, parts};
}

Value RowsInRegisters::feature(int64_t i) { return k.add(k.mul(member(), n), i * team * n); }

Value RowsInRegisters::inside(int64_t i) { return (i + 1) * team * n <= width ? Value() : k.less(feature(i), width); }

Row RowsInRegisters::load(const View &p) {
  Row row;
  for (int64_t i = 0; i < groups(); ++i) {
    auto read = [&] { return k.load(p + feature(i), n); };
    Value within = inside(i);
    row.registers.append(within ? k.choose(within, read, [&] { return Values(n, k.scalar(0)); }) : read());
  }
  return row;
}

// The operands at this thread's i-th feature.
static SmallVector<Value> registersAt(ArrayRef<Row> operands, int64_t i) {
  return llvm::map_to_vector(operands, [&](const Row &operand) { return operand.registers[i]; });
}

Row RowsInRegisters::keep(ArrayRef<Row> operands, const View &to, const ComputeOne &compute) {
  Row row;
  for (int64_t i = 0; i < groups() * n; ++i)
    row.registers.push_back(compute(registersAt(operands, i)));
  if (to)
    store(row.registers, to);
  return row;
}

void RowsInRegisters::store(ArrayRef<Row> operands, const View &to, const ComputeOne &compute) {
  keep(operands, to, compute);
}

void RowsInRegisters::store(ArrayRef<Value> values, const View &p) {
  for (int64_t i = 0; i < groups(); ++i) {
    auto write = [&] { k.store(values.slice(i * n, n), p + feature(i)); };
    if (Value within = inside(i))
      k.when(within, write);
    else
      write();
  }
}

Value RowsInRegisters::largest(ArrayRef<Row> operands, const ComputeOne &compute) {
  Value result = k.scalar(0);
  for (int64_t i = 0; i < groups() * n; ++i) {
    Value x = compute(registersAt(operands, i)), within = inside(i / n);
    result = k.maxf(result, within ? k.select(within, x, 0) : x);
  }
  return RowTeam::max(result);
}

Values RowsInRegisters::sumsAndTotals(int64_t count, ArrayRef<Row> operands, MutableArrayRef<Row> totals,
                                      const Compute &compute) {
  SmallVector<Values> terms(count);
  for (int64_t i = 0; i < groups() * n; ++i) {
    SmallVector<Value> xs = registersAt(operands, i);
    xs.append(registersAt(totals, i));
    const Values results = compute(xs);
    Value within = inside(i / n);
    for (int64_t s = 0; s < count; ++s)
      if (results[s])
        terms[s].push_back(within ? k.select(within, results[s], 0) : results[s]);
    for (auto [s, total] : llvm::enumerate(totals))
      total.registers[i] = results[count + s];
  }
  Values results;
  for (Values &ofThread : terms) {
    while (ofThread.size() > 1) {
      const size_t half = (ofThread.size() + 1) / 2;
      for (size_t i = 0; i + half < ofThread.size(); ++i)
        ofThread[i] = k.addf(ofThread[i], ofThread[i + half]);
      ofThread.resize(half);
    }
    results.push_back(ofThread.empty() ? Value() : RowTeam::sum(ofThread[0]));
  }
  return results;
}

void RowsInRegisters::storeSum(ArrayRef<Value> values, const View &p) {
  if (teams() == 1)
    return store(values, p);
  const int64_t mark = k.sharedMark();
  View parts = k.at(k.shared(teams() * llvm::alignTo(width, 4) * k.bytes()));
  auto part = [&](Value team) { return parts + k.mul(team, llvm::alignTo(width, 4)); };
  store(values, part(k.warp()));
  k.barrier();
  k.acrossThreads(width, [&](Value f) {
    Value total = k.load(parts + f);
    for (int64_t i = 1; i < teams(); ++i)
      total = k.addf(total, k.load(part(k.i32Of(static_cast<int32_t>(i))) + f));
    k.store(total, p + f);
  });
  k.barrier(); // the parts may be overwritten from here on
  k.releaseShared(mark);
}

//===--------------------------------------------------------------------------------------------------------===//
// Rows in memory
//===--------------------------------------------------------------------------------------------------------===//

// Long rows get more threads, since a decoding step has few rows.
RowsInMemory::RowsInMemory(KernelBuilder &k, int64_t width)
    : RowsInMemory(k, width, width <= 8192 ? 256 : 1024, width <= 1024) {}

Values RowsInMemory::loop(const View &p, ValueRange state,
                          const std::function<Values(Value, const Values &, Values)> &body) {
  return k.loop(k.mul(member(), n), width, team * n, state,
                [&](Value f, Values s) { return body(f, k.load(p + f, n), std::move(s)); });
}

// In one pass: a thread rescales its sum of exp(x - m) when its largest element m grows.
RowSums RowsInMemory::rowSums(const View &from, ArrayRef<int64_t> leftOut, Value first) {
  Values state = loop(from, {k.scalar(lowest), k.scalar(0), k.scalar(0)}, [&](Value f, Values x, Values s) -> Values {
    for (int64_t token : leftOut)
      for (auto [j, v] : llvm::enumerate(x)) {
        Value feature = k.add(f, static_cast<int64_t>(j)), own = first ? k.add(first, feature) : feature;
        v = k.select(k.equal(own, token), -INFINITY, v);
      }
    Value most = s[0];
    for (Value v : x)
      most = k.maxf(v, most);
    Value exponentials = k.mulf(s[1], k.exp(k.subf(s[0], most))), sum = s[2];
    for (Value v : x) {
      exponentials = k.addf(exponentials, k.exp(k.subf(v, most)));
      sum = k.addf(sum, v);
    }
    return {most, exponentials, sum};
  });
  Value most = max(state[0]);
  Value exponentials = RowTeam::sum(k.mulf(state[1], k.exp(k.subf(state[0], most))));
  return {k.addf(most, k.log(exponentials)), state[2]};
}

std::pair<Value, Value> RowsInMemory::logSumExp(const Row &of, bool withSum) {
  const RowSums sums = rowSums(of.memory);
  return {sums.lse, withSum ? RowTeam::sum(sums.threadSum) : Value()};
}

void RowsInMemory::each(ArrayRef<Row> operands, const std::function<void(Value, ArrayRef<SmallVector<Value>>)> &body) {
  k.loop(k.mul(member(), n), width, team * n, [&](Value f) {
    SmallVector<SmallVector<Value>> at(n);
    for (const Row &operand : operands)
      for (auto [j, x] : llvm::enumerate(k.load(operand.memory + f, n)))
        at[j].push_back(x);
    body(f, at);
  });
}

void RowsInMemory::store(ArrayRef<Row> operands, const View &to, const ComputeOne &compute) {
  each(operands, [&](Value f, ArrayRef<SmallVector<Value>> at) {
    Values ys;
    for (const SmallVector<Value> &xs : at)
      ys.push_back(compute(xs));
    k.store(ys, to + f);
  });
}

void RowsInMemory::storeExceptAt(Value column, Value there, Value elsewhere, ArrayRef<Row> operands, const View &to,
                                 const ComputeOne &compute) {
  Value exception = k.truncated(column);
  each(operands, [&](Value f, ArrayRef<SmallVector<Value>> at) {
    Values ys;
    for (auto [j, usual] : llvm::enumerate(at)) {
      SmallVector<Value> xs = usual;
      xs.push_back(k.select(k.equal(k.add(f, static_cast<int64_t>(j)), exception), there, elsewhere));
      ys.push_back(compute(xs));
    }
    k.store(ys, to + f);
  });
}

// In the thread that has stored the feature.
void RowsInMemory::subtractAt(Value column, Value amount, const View &to) {
  Value own = member();
  k.when(k.equal(k.rem(k.div(k.truncated(column), n), team), own), [&] {
    View place = to + column;
    k.store(k.subf(k.load(place), amount), place);
  });
}

Values RowsInMemory::sums(int64_t count, ArrayRef<Row> operands, const Compute &compute) {
  Values terms;
  Values ofThread =
      loop(operands[0].memory, Values(count, k.scalar(0)), [&](Value f, const Values &first, Values s) -> Values {
        SmallVector<Values> xs = {first};
        for (const Row &operand : operands.drop_front())
          xs.push_back(k.load(operand.memory + f, n));
        for (int64_t j = 0; j < n; ++j) {
          terms = compute(llvm::map_to_vector(xs, [&](const Values &x) { return x[j]; }));
          for (int64_t i = 0; i < count; ++i)
            if (terms[i])
              s[i] = k.addf(s[i], terms[i]);
        }
        return s;
      });
  Values results;
  for (int64_t i = 0; i < count; ++i)
    results.push_back(terms[i] ? RowTeam::sum(ofThread[i]) : Value());
  return results;
}

} // namespace xfc::gpu
