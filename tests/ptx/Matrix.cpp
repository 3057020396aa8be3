// Executes ldmatrix, stmatrix and mma.sync. Fragments are laid out as in the ISA's figures: lane = 4 * group + within.
#include "Decoder.h"
#include "Numbers.h"
#include <cstring>

namespace xfc::ptx {
namespace {

void wholeWarp(Warp &w) {
  if (w.active != ~0u)
    w.fault("divergent: " + std::to_string(std::popcount(w.active)) +
            " of 32 lanes are at an instruction of the whole warp");
}

// op: registers of the matrices; count: number of matrices; selector: 1 for .trans.
void matrixAccess(Warp &w, const Instruction &i, bool loads) {
  wholeWarp(w);
  uint64_t address[32];
  addresses(w, i.at[0], address);
  Access kind = loads ? Access::Read : Access::Write;
  for (int m = 0; m < i.count; ++m) {
    uint16_t element[8][8];
    uint8_t *rows[8];
    auto *reg = w.at<uint32_t>(i.op[size_t(m)]);
    for (int r = 0; r < 8; ++r) {
      rows[r] = resolve(w, EveryLane, i.at[0].space, address[m * 8 + r], 16, 16, kind);
      if (loads)
        memcpy(element[r], rows[r], 16);
    }
    for (int l = 0; l < 32; ++l) {
      int row = l / 4, column = l % 4 * 2;
      uint16_t &low = i.selector ? element[column][row] : element[row][column];
      uint16_t &high = i.selector ? element[column + 1][row] : element[row][column + 1];
      if (loads)
        reg[l] = uint32_t(high) << 16 | low;
      else
        low = uint16_t(reg[l]), high = uint16_t(reg[l] >> 16);
    }
    if (!loads)
      for (int r = 0; r < 8; ++r)
        memcpy(rows[r], element[r], 16);
  }
  Counters &counters = w.block->cluster->counters;
  (loads ? counters.sharedRead : counters.sharedWritten) += uint64_t(i.count) * 128;
}

void matrix(Decoder &d) {
  bool loads = d.s.opcode == "ldmatrix";
  for (const char *needed : {"sync", "aligned", "m8n8"})
    if (!d.take(needed))
      d.fail("lacks ." + std::string(needed));
  constexpr uint8_t counts[] = {1, 2, 4};
  d.i.count = counts[d.choose({"x1", "x2", "x4"})];
  d.i.selector = d.take("trans");
  bool shared = d.take("shared") || d.take("shared::cta");
  if (d.type() != Type::B16)
    d.fail("is for b16");
  d.expect(2, 2);
  d.i.at[0] = d.address(d.s.operands[loads ? 1 : 0], shared ? Space::Shared : Space::Generic);
  for (const Operand &o : d.vector(d.s.operands[loads ? 0 : 1], d.i.count))
    d.i.op.push_back(loads ? d.destination(o, Type::B32) : d.source(o, Type::B32));
  d.set(loads ? Handler([](Warp &w, const Instruction &i) { matrixAccess(w, i, true); })
              : Handler([](Warp &w, const Instruction &i) { matrixAccess(w, i, false); }));
}

// Explicit vectors, because auto-vectorization fails here: it gives 8 scalar sums, at half the speed.
using Four = double __attribute__((vector_size(32)));

// D = A * B + C with A 16 x K, B K x 8. op: 4 registers of D, the registers of A, of B, 4 of C.
// A register holds two adjacent k of 16-bit operands, or one of tf32.
template <int K, Type T> void mmaLanes(Warp &w, const Instruction &i) {
  wholeWarp(w);
  constexpr bool pairs = T != Type::TF32;
  constexpr int perRegister = pairs ? 2 : 1, columns = 4 * perRegister; // k covered by one register across all lanes
  constexpr int ofA = 2 * K / columns, ofB = K / columns;
  double a[16][K];
  alignas(32) double b[K][8], sum[16][8];
  // Element e of a register in all lanes.
  auto convert = [&](size_t op, int e, double *out) {
    const auto *reg = w.at<uint32_t>(i.op[op]);
    for (int l = 0; l < 32; ++l) {
      if constexpr (T == Type::TF32)
        out[l] = tf32(reg[l]);
      else if constexpr (T == Type::BF16)
        out[l] = asFloat(e ? reg[l] & 0xffff0000 : reg[l] << 16);
      else
        out[l] = half(uint16_t(reg[l] >> (16 * e)));
    }
  };
  double value[32];
  for (int r = 0; r < ofA; ++r)
    for (int e = 0; e < perRegister; ++e) {
      convert(size_t(4 + r), e, value);
      for (int group = 0; group < 8; ++group)
        for (int within = 0; within < 4; ++within)
          a[group + r % 2 * 8][r / 2 * columns + within * perRegister + e] = value[4 * group + within];
    }
  for (int r = 0; r < ofB; ++r)
    for (int e = 0; e < perRegister; ++e) {
      convert(size_t(4 + ofA + r), e, value);
      for (int group = 0; group < 8; ++group)
        for (int within = 0; within < 4; ++within)
          b[r * columns + within * perRegister + e][group] = value[4 * group + within];
    }
  // Register r of C and D: row group + 8 (r / 2), column 2 within + r % 2.
  for (int r = 0; r < 4; ++r) {
    const auto *c = w.at<float>(i.op[size_t(4 + ofA + ofB + r)]);
    for (int group = 0; group < 8; ++group)
      for (int within = 0; within < 4; ++within)
        sum[group + r / 2 * 8][within * 2 + r % 2] = c[4 * group + within];
  }
  for (int m = 0; m < 16; ++m) {
    Four low, high, right[2];
    memcpy(&low, sum[m], sizeof low);
    memcpy(&high, sum[m] + 4, sizeof high);
    for (int k = 0; k < K; ++k) {
      memcpy(right, b[k], sizeof right);
      low += a[m][k] * right[0];
      high += a[m][k] * right[1];
    }
    memcpy(sum[m], &low, sizeof low);
    memcpy(sum[m] + 4, &high, sizeof high);
  }
  for (int r = 0; r < 4; ++r) {
    auto *d = w.at<float>(i.op[size_t(r)]);
    for (int group = 0; group < 8; ++group)
      for (int within = 0; within < 4; ++within)
        d[4 * group + within] = canonical(float(sum[group + r / 2 * 8][within * 2 + r % 2]));
  }
}

void mma(Decoder &d) {
  for (const char *needed : {"sync", "aligned", "row", "col"})
    if (!d.take(needed))
      d.fail("lacks ." + std::string(needed));
  int shape = d.choose({"m16n8k4", "m16n8k8", "m16n8k16"});
  Type to = d.type(), a = d.type(), b = d.type(), c = d.type();
  if (to != Type::F32 || c != Type::F32 || a != b || (a != Type::F16 && a != Type::BF16 && a != Type::TF32))
    d.fail("these types are not supported");
  int k = 4 << shape, columns = a == Type::TF32 ? 4 : 8;
  if (k < columns || k > 2 * columns)
    d.fail("no such shape of these types");
  d.expect(4, 4);
  for (const Operand &o : d.vector(d.s.operands[0], 4))
    d.i.op.push_back(d.destination(o, Type::F32));
  for (const Operand &o : d.vector(d.s.operands[1], size_t(2 * k / columns)))
    d.i.op.push_back(d.source(o, Type::B32));
  for (const Operand &o : d.vector(d.s.operands[2], size_t(k / columns)))
    d.i.op.push_back(d.source(o, Type::B32));
  for (const Operand &o : d.vector(d.s.operands[3], 4))
    d.i.op.push_back(d.source(o, Type::F32));
  if (a == Type::TF32)
    d.set(k == 4 ? mmaLanes<4, Type::TF32> : mmaLanes<8, Type::TF32>);
  else if (a == Type::F16)
    d.set(k == 8 ? mmaLanes<8, Type::F16> : mmaLanes<16, Type::F16>);
  else
    d.set(k == 8 ? mmaLanes<8, Type::BF16> : mmaLanes<16, Type::BF16>);
}

} // namespace

void addMatrix(Opcodes &o) {
  o["ldmatrix"] = o["stmatrix"] = matrix;
  o["mma"] = mma;
}

} // namespace xfc::ptx
