// Executes wgmma: four warps multiply 64 rows, 16 each. Products are computed when their group is waited for, as late
// as allowed. The rules for registers and for the four warps are always checked; those for shared memory only if checks
// are on (Shadow.h).
#include "Decoder.h"
#include "Numbers.h"
#include "TensorMap.h"
#include <cstring>

namespace xfc::ptx {
namespace {

void wholeWarp(Warp &w) {
  if (w.active != ~0u)
    w.fault("divergent: " + std::to_string(std::popcount(w.active)) +
            " of 32 lanes are at an instruction of the whole warp");
}

// Checks that the four warps of a warpgroup issue the same wgmma instructions with the same descriptors. The first warp
// to reach a step defines it.
void together(Warp &w, const WarpgroupStep &step) {
  wholeWarp(w);
  const uint32_t begin = w.number / 4 * 4;
  Block &block = *w.block;
  if (begin + 4 > block.warps.size())
    w.fault("wgmma is for the four warps of a warpgroup, of which the block has " +
            std::to_string(block.warps.size() - begin));
  Warpgroup &group = block.warpgroups[w.number / 4];
  const uint64_t number = w.warpgroupSteps++;
  if (number == group.first + group.steps.size()) {
    group.steps.push_back(step);
  } else if (const WarpgroupStep &first = group.steps[number - group.first]; first.instruction != step.instruction) {
    w.fault("the warps of a warpgroup part: another one issues the instruction at PTX line " +
            std::to_string(first.instruction->line) + " where this one is");
  } else if (first != step) {
    w.fault("the warps of a warpgroup give different descriptors or scale-d");
  }
  uint64_t all = ~uint64_t(0);
  for (uint32_t n = begin; n < begin + 4; ++n)
    all = std::min(all, block.warps[n].warpgroupSteps);
  for (; group.first < all; ++group.first)
    group.steps.pop_front();
}

void step(Warp &w, const Instruction &i) { together(w, {&i}); }

// Handler of other instructions that access registers of products.
void watched(Warp &w, const Instruction &i) {
  for (uint16_t number : i.products) {
    ProductRegister &r = w.productRegisters[number];
    if (r.underWay)
      w.fault("a register of a wgmma.mma_async that is not waited for is accessed");
    r.fenced = false;
    r.adds = 0;
    r.line = i.line;
  }
  i.unwatched(w, i);
}

// A matrix in shared memory as described by its descriptor. `mn`: the row of A or the column of B.
struct Descriptor {
  explicit Descriptor(uint64_t bits)
      : start(uint32_t(bits & 0x3fff) << 4), leading(uint32_t(bits >> 16 & 0x3fff) << 4),
        stride(uint32_t(bits >> 32 & 0x3fff) << 4), swizzle(bits >> 62 == 1   ? 128
                                                            : bits >> 62 == 2 ? 64
                                                            : bits >> 62 == 3 ? 32
                                                                              : 0) {}
  uint32_t start, leading, stride;
  int swizzle;

  // The offset of an element of `bytes` bytes. The matrix consists of 8 rows (K-major) or 8 k (MN-major) of as many
  // bytes as the swizzle spans, or of 16 without a swizzle.
  uint32_t offset(int mn, int k, uint32_t bytes, bool mnMajor) const {
    uint32_t row = swizzle ? uint32_t(swizzle) : 16, at;
    if (!mnMajor) {
      uint32_t along = uint32_t(k) * bytes;
      // Within a swizzled row the k of one instruction are adjacent; without a swizzle each 16 bytes are `leading`
      // bytes apart.
      at = uint32_t(mn / 8) * stride + uint32_t(mn % 8) * row + (swizzle ? along : along / 16 * leading + along % 16);
    } else {
      uint32_t along = uint32_t(mn) * bytes;
      if (swizzle)
        at = along / row * leading + along % row + uint32_t(k / 8) * stride + uint32_t(k % 8) * row;
      else
        at = along / 16 * stride + along % 16 + uint32_t(k / 8) * leading + uint32_t(k % 8) * 16;
    }
    return swizzled(start + at, swizzle);
  }
};

// op: D (N / 2), scale-d (a predicate), A (4 registers, or the descriptor), B's descriptor.
// count: 1 if A is in registers; width: bytes per element; selector: N; selector2: bits 0 and 1 transpose A and B, 2
// and 3 negate them.
template <Type T>
void multiply(Warp &w, const Instruction &i, bool accumulates, const Descriptor &ofA, const Descriptor &ofB) {
  constexpr int bytes = T == Type::TF32 ? 4 : 2, K = 32 / bytes;
  int n = i.selector;
  size_t ofD = size_t(n / 2), atA = ofD + 1;
  auto value = [](const uint8_t *at) -> double {
    if constexpr (T == Type::TF32) {
      uint32_t bits;
      memcpy(&bits, at, 4);
      return tf32(bits);
    }
    uint16_t bits;
    memcpy(&bits, at, 2);
    return T == Type::BF16 ? bfloat(bits) : half(bits);
  };
  auto fetch = [&](const Descriptor &d, int mn, int k, bool transposed) {
    return value(
        resolve(w, EveryLane, Space::Shared, d.offset(mn, k, bytes, transposed), bytes, bytes, Access::BulkRead));
  };
  double a[16][K], sum[16][256];
  static thread_local double b[K][256];
  if (i.count) {
    constexpr int perRegister = 4 / bytes, columns = 4 * perRegister;
    for (int l = 0; l < 32; ++l)
      for (int r = 0; r < 4; ++r) {
        const auto *reg = w.registers + i.op[atA + size_t(r)] + 4 * l;
        for (int e = 0; e < perRegister; ++e)
          a[l / 4 + r % 2 * 8][r / 2 * columns + l % 4 * perRegister + e] = value(reg + e * bytes);
      }
  } else {
    for (int m = 0; m < 16; ++m)
      for (int k = 0; k < K; ++k)
        a[m][k] = fetch(ofA, int(w.number % 4) * 16 + m, k, i.selector2 & 1);
  }
  for (int k = 0; k < K; ++k)
    for (int c = 0; c < n; ++c)
      b[k][c] = fetch(ofB, c, k, i.selector2 & 2);
  double sign = (i.selector2 >> 2 & 1) != (i.selector2 >> 3 & 1) ? -1 : 1;
  for (int l = 0; l < 32; ++l)
    for (size_t r = 0; r < ofD; ++r)
      sum[size_t(l / 4) + r / 2 % 2 * 8][r / 4 * 8 + size_t(l % 4) * 2 + r % 2] =
          accumulates ? w.at<float>(i.op[r])[l] : 0;
  for (int m = 0; m < 16; ++m)
    for (int k = 0; k < K; ++k)
      for (int c = 0; c < n; ++c)
        sum[m][c] += sign * a[m][k] * b[k][c];
  for (int l = 0; l < 32; ++l)
    for (size_t r = 0; r < ofD; ++r)
      w.at<float>(i.op[r])[l] =
          canonical(float(sum[size_t(l / 4) + r / 2 % 2 * 8][r / 4 * 8 + size_t(l % 4) * 2 + r % 2]));
}

// Issues a product: its operands in shared memory may be read from now until it is waited for.
template <Type T> void issue(Warp &w, const Instruction &i) {
  wholeWarp(w);
  size_t ofD = size_t(i.selector / 2), atB = ofD + 1 + (i.count ? 4 : 1);
  auto uniform = [&](size_t op) {
    const auto *d = w.at<uint64_t>(i.op[op]);
    for (int l = 1; l < 32; ++l)
      if (d[l] != d[0])
        w.fault(l, "the threads of a warp give different descriptors");
  };
  uniform(atB);
  if (!i.count)
    uniform(ofD + 1);
  uint32_t p = *w.at<uint32_t>(i.op[ofD]);
  if (p != 0 && p != ~0u)
    w.fault("the threads of a warp give different scale-d");
  together(w, {&i, i.count ? 0 : w.at<uint64_t>(i.op[ofD + 1])[0], w.at<uint64_t>(i.op[atB])[0], p});
  const uint32_t adds = uint32_t(i.selector) << 8 | uint32_t(T);
  for (size_t r = 0; r < i.products.size(); ++r) {
    ProductRegister &reg = w.productRegisters[i.products[r]];
    const bool isD = r < ofD;
    if (!reg.fenced || (reg.adds && !(isD && reg.adds == adds)))
      w.fault((isD ? "accumulator " + std::to_string(r) : "register " + std::to_string(r - ofD) + " of A") +
              (reg.fenced ? " has sums of a product of another shape"
               : reg.line ? " was accessed at PTX line " + std::to_string(reg.line)
                          : " is that of a first product") +
              ", and no wgmma.fence came since");
    if (isD)
      reg.adds = adds;
    ++reg.underWay;
  }
  // Descriptors are read now; registers of A and D belong to the product until it is waited for.
  Descriptor ofA(i.count ? 0 : w.at<uint64_t>(i.op[ofD + 1])[0]), ofB(w.at<uint64_t>(i.op[atB])[0]);
  if (w.block->cluster->shadow) {
    constexpr int bytes = T == Type::TF32 ? 4 : 2, K = 32 / bytes;
    auto touch = [&](const Descriptor &d, int first, int count, bool transposed) {
      for (int mn = first; mn < first + count; ++mn)
        for (int k = 0; k < K; ++k)
          resolve(w, EveryLane, Space::Shared, d.offset(mn, k, bytes, transposed), bytes, bytes, Access::BulkRead);
    };
    touch(ofB, 0, i.selector, i.selector2 & 2);
    if (!i.count)
      touch(ofA, int(w.number % 4) * 16, 16, i.selector2 & 1);
  }
  w.products.push_back({0, w.productGroup, [&w, &i, p, ofA, ofB] {
                          const Instruction *current = std::exchange(w.current, &i);
                          multiply<T>(w, i, p != 0, ofA, ofB);
                          w.current = current;
                          for (uint16_t number : i.products)
                            --w.productRegisters[number].underWay;
                        }});
}

void wgmma(Decoder &d) {
  if (d.take("fence")) {
    d.take("sync");
    d.take("aligned");
    d.expect(0, 0);
    return d.set([](Warp &w, const Instruction &i) {
      step(w, i);
      for (ProductRegister &r : w.productRegisters) {
        r.fenced = true;
        r.adds = 0;
      }
    });
  }
  if (d.take("commit_group")) {
    d.take("sync");
    d.take("aligned");
    d.expect(0, 0);
    return d.set([](Warp &w, const Instruction &i) {
      step(w, i);
      ++w.productGroup;
    });
  }
  if (d.take("wait_group")) {
    d.take("sync");
    d.take("aligned");
    d.expect(1, 1);
    d.i.selector = int32_t(d.immediate(0));
    return d.set([](Warp &w, const Instruction &i) {
      step(w, i);
      // In order: a later product may accumulate on the result of an earlier one.
      size_t due = 0;
      while (due < w.products.size() && w.products[due].group + uint32_t(i.selector) < w.productGroup)
        w.products[due++].run();
      w.products.erase(w.products.begin(), w.products.begin() + ptrdiff_t(due));
    });
  }
  for (const char *needed : {"mma_async", "sync", "aligned"})
    if (!d.take(needed))
      d.fail("lacks ." + std::string(needed));
  int n = 0, k = 0;
  for (const std::string &m : d.s.modifiers)
    if (m.starts_with("m64n")) {
      char end;
      if (sscanf(m.c_str(), "m64n%dk%d%c", &n, &k, &end) != 2 || n < 8 || n > 256 || n % 8)
        d.fail("no such shape: " + m);
      d.take(m.c_str());
      break;
    }
  Type to = d.type(), a = d.type(), b = d.type();
  if (to != Type::F32 || a != b || (a != Type::BF16 && a != Type::F16 && a != Type::TF32))
    d.fail("these types are not supported");
  if (k != (a == Type::TF32 ? 8 : 16))
    d.fail("no such shape of these types");
  bool registers = d.s.operands.at(1).kind == Operand::Kind::Vector;
  size_t transposes = a == Type::TF32 ? 0 : registers ? 1 : 2;
  d.expect(6 + transposes, 6 + transposes);
  for (const Operand &o : d.vector(d.s.operands[0], size_t(n / 2)))
    d.i.op.push_back(d.destination(o, Type::F32));
  d.i.op.push_back(d.source(3, Type::Pred));
  if (registers) {
    for (const Operand &o : d.vector(d.s.operands[1], 4))
      d.i.op.push_back(d.source(o, Type::B32));
  } else {
    d.i.op.push_back(d.source(1, Type::B64));
  }
  d.i.op.push_back(d.source(2, Type::B64));
  d.i.count = registers;
  d.i.selector = n;
  for (size_t s = 0; s < 2; ++s) {
    int64_t scale = d.immediate(4 + s);
    if (scale != 1 && scale != -1)
      d.fail("scales are 1 or -1");
    d.i.selector2 |= scale < 0 ? 4 << s : 0;
  }
  if (transposes == 2)
    d.i.selector2 |= int32_t(d.immediate(6) ? 1 : 0) | int32_t(d.immediate(7) ? 2 : 0);
  else if (transposes == 1)
    d.i.selector2 |= d.immediate(6) ? 2 : 0;
  d.set(a == Type::TF32 ? issue<Type::TF32> : a == Type::F16 ? issue<Type::F16> : issue<Type::BF16>);
}

bool isProduct(const Instruction &i) {
  return i.run == issue<Type::BF16> || i.run == issue<Type::F16> || i.run == issue<Type::TF32>;
}

} // namespace

void watchProductRegisters(Function &f) {
  std::map<uint32_t, uint16_t> numbers; // by offset in the register file
  auto number = [&](uint32_t reg) { return numbers.try_emplace(reg, uint16_t(numbers.size())).first->second; };
  for (Instruction &i : f.code)
    if (isProduct(i)) {
      const size_t ofD = size_t(i.selector / 2);
      for (size_t r = 0; r < ofD; ++r)
        i.products.push_back(number(i.op[r]));
      for (size_t r = 0; i.count && r < 4; ++r)
        i.products.push_back(number(i.op[ofD + 1 + r]));
    }
  f.productRegisters = uint16_t(numbers.size());
  for (Instruction &i : f.code) {
    // The operands of a call are places in memory, not registers.
    if (numbers.empty() || isProduct(i) || f.program->kinds[i.kind].starts_with("call"))
      continue;
    auto access = [&](uint32_t reg) {
      if (auto found = numbers.find(reg); found != numbers.end())
        i.products.push_back(found->second);
    };
    for (uint32_t reg : i.op)
      access(reg);
    for (const Place &place : i.at)
      access(place.reg);
    if (!i.products.empty())
      i.unwatched = std::exchange(i.run, watched);
  }
}

// Called when all lanes of w have exited.
void leaveWarpgroup(Warp &w) {
  const uint32_t begin = w.number / 4 * 4;
  const auto &warps = w.block->warps;
  for (uint32_t n = begin; n < begin + 4 && n < warps.size(); ++n)
    if (!warps[n].alive && warps[n].warpgroupSteps != w.warpgroupSteps)
      w.fault(0, "the warps of a warpgroup part: one ends after " + std::to_string(w.warpgroupSteps) +
                     " of wgmma's instructions, and another after " + std::to_string(warps[n].warpgroupSteps));
}

void addWarpgroup(Opcodes &o) { o["wgmma"] = wgmma; }

} // namespace xfc::ptx
