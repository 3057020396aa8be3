// Spreads the features of a row over the threads that share it.
#include "Rows.h"
#include "Emitters.h"
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

Partition overRows(KernelBuilder &k, int64_t width, ArrayRef<BufferIndex> buffers,
                   const std::function<Value(ArrayRef<Value>)> &compute,
                   const std::function<View(BufferIndex, Value)> &address) {
  const int64_t per = rowsPerBlock(width);
  k.vectorized(buffers, width, [&](int64_t n) {
    eachGroup(k, per, width / n, [&](Value row, Value group) {
      auto at = [&](BufferIndex i) {
        Value f = k.mul(group, n);
        return (address ? address(i, row) : k.rowsOf(i).row(row)) + f;
      };
      SmallVector<Values> xs;
      for (BufferIndex operand : buffers.drop_back())
        xs.push_back(k.load(at(operand), n));
      Values ys;
      for (int64_t j = 0; j < n; ++j)
        ys.push_back(compute(llvm::map_to_vector(xs, [&](const Values &x) { return x[j]; })));
      k.store(ys, at(buffers.back()));
    });
  });
  return {Partition::Unit::Rows, per, 1};
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
  const bool byWarp = team == KernelBuilder::warpSize;
  vectorized(buffers, [&] {
    if (byWarp)
      k.eachRowByWarp(k.warps(), body);
    else
      k.rowByBlock(body);
  });
  return {Partition::Unit::Rows, byWarp ? k.warps() : 1, 1};
}

Values RowTeam::someRows(Value from, Value to, ValueRange state, const std::function<Values(Value, Values)> &body) {
  return k.loop(teams() > 1 ? k.add(from, k.i64Of(k.warp())) : from, to, teams(), state, body);
}

Value RowTeam::member() { return team == KernelBuilder::warpSize ? k.lane() : k.thread(); }
Value RowTeam::across(Value v, const KernelBuilder::Combine &combine) {
  return team == KernelBuilder::warpSize ? k.acrossLanes(v, combine) : k.acrossBlock(v, combine);
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
RowInRegisters::RowInRegisters(KernelBuilder &k, int64_t width)
    : RowTeam(k, width, width <= int64_t{256} * 32 ? 256 : 1024, width <= int64_t{32} * 32) {}

Value RowInRegisters::feature(int64_t i) { return k.add(k.mul(member(), n), i * team * n); }

Value RowInRegisters::inside(int64_t i) { return (i + 1) * team * n <= width ? Value() : k.less(feature(i), width); }

Values RowInRegisters::load(const View &p) {
  Values all;
  for (int64_t i = 0; i < groups(); ++i) {
    auto read = [&] { return k.load(p + feature(i), n); };
    Value within = inside(i);
    all.append(within ? k.choose(within, read, [&] { return Values(n, k.scalar(0)); }) : read());
  }
  return all;
}

void RowInRegisters::store(ArrayRef<Value> values, const View &p) {
  for (int64_t i = 0; i < groups(); ++i) {
    auto write = [&] { k.store(values.slice(i * n, n), p + feature(i)); };
    if (Value within = inside(i))
      k.when(within, write);
    else
      write();
  }
}

Values RowInRegisters::each(ArrayRef<Values> operands, const Compute &compute, bool masked) {
  Values results;
  for (int64_t i = 0; i < groups() * n; ++i) {
    SmallVector<Value> xs;
    for (const Values &operand : operands)
      xs.push_back(operand[i]);
    Value result = compute(xs), within = masked ? inside(i / n) : Value();
    results.push_back(within ? k.select(within, result, 0) : result);
  }
  return results;
}

Value RowInRegisters::sum(ArrayRef<Value> values) {
  SmallVector<Value> terms(values);
  while (terms.size() > 1) {
    const size_t half = (terms.size() + 1) / 2;
    for (size_t i = 0; i + half < terms.size(); ++i)
      terms[i] = k.addf(terms[i], terms[i + half]);
    terms.resize(half);
  }
  return sum(terms[0]);
}

void RowInRegisters::storeSum(ArrayRef<Value> values, const View &p) {
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

// Long rows get more threads, since a decoding step has few rows.
RowInMemory::RowInMemory(KernelBuilder &k, int64_t width)
    : RowTeam(k, width, width <= 8192 ? 256 : 1024, width <= 1024) {}

RowInMemory RowInMemory::another(int64_t width) const {
  RowInMemory row = *this;
  row.width = width;
  row.n = 1;
  return row;
}

void RowInMemory::each(const std::function<void(Value)> &body) { k.loop(k.mul(member(), n), width, team * n, body); }

void RowInMemory::whereVisited(Value f, const std::function<void()> &body) {
  Value own = member();
  k.when(k.equal(k.rem(k.div(f, n), team), own), body);
}

Values RowInMemory::loop(const View &p, ValueRange state,
                         const std::function<Values(Value, const Values &, Values)> &body) {
  return k.loop(k.mul(member(), n), width, team * n, state,
                [&](Value f, Values s) { return body(f, k.load(p + f, n), std::move(s)); });
}

} // namespace xfc::gpu
