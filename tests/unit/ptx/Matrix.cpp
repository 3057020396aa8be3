// Tests the fragments of mma.sync and ldmatrix against the ISA's tables, and products against sums on the host.
#include "Fixture.h"
#include "Numbers.h"
#include <random>

using namespace xfc::ptx;
using namespace xfc::ptx::test;

namespace {

// Small integers, exact in every format and sum.
struct Operands {
  explicit Operands(int k) : a(size_t(16 * k)), b(size_t(k * 8)), c(16 * 8) {
    std::mt19937 random(uint32_t(k) + 7);
    for (auto *m : {&a, &b, &c})
      for (float &x : *m)
        x = float(int(random() % 17) - 8);
  }
  std::vector<float> a, b, c; // row-major 16 x k, k x 8, 16 x 8
};

void checkProduct(const std::string &instruction, int k, int ofA, int ofB, std::function<uint32_t(int lane, int reg)> a,
                  std::function<uint32_t(int lane, int reg)> b, const Operands &o) {
  SCOPED_TRACE(instruction);
  Interpreter on;
  std::vector<uint32_t> fa(size_t(32 * ofA)), fb(size_t(32 * ofB));
  std::vector<float> fc(128);
  for (int l = 0; l < 32; ++l) {
    for (int r = 0; r < ofA; ++r)
      fa[size_t(l * ofA + r)] = a(l, r);
    for (int r = 0; r < ofB; ++r)
      fb[size_t(l * ofB + r)] = b(l, r);
    for (int i = 0; i < 4; ++i) // c_i: row group (+ 8 for i >= 2), column 2 * within + (i & 1)
      fc[size_t(l * 4 + i)] = o.c[size_t((l / 4 + (i >= 2 ? 8 : 0)) * 8 + l % 4 * 2 + (i & 1))];
  }
  Array<uint32_t> da(on, fa), db(on, fb);
  Array<float> dc(on, fc), dd(on, std::vector<float>(128));
  auto load = [](const char *reg, const char *from, int n) {
    std::string list, text = "mad.wide.u32 %q, %t, " + std::to_string(4 * n) + ", " + from + ";\n";
    for (int r = 0; r < n; ++r)
      text += "ld.global.b32 " + std::string(reg) + std::to_string(r) + ", [%q+" + std::to_string(4 * r) + "];\n";
    return text;
  };
  auto list = [](const char *reg, int n) {
    std::string text = "{";
    for (int r = 0; r < n; ++r)
      text += (r ? "," : "") + std::string(reg) + std::to_string(r);
    return text + "}";
  };
  run(on,
      kernel(4, ".reg .b64 %q; .reg .b32 %a<4>, %b<4>, %c<4>, %d<4>;\n" + load("%a", "%p0", ofA) +
                    load("%b", "%p1", ofB) + load("%c", "%p2", 4) + instruction + " {%d0,%d1,%d2,%d3}, " +
                    list("%a", ofA) + ", " + list("%b", ofB) +
                    ", {%c0,%c1,%c2,%c3};\nmad.wide.u32 %q, %t, 16, %p3; st.global.v4.f32 [%q], {%d0,%d1,%d2,%d3};"),
      {}, {32, 1, 1}, {da.address, db.address, dc.address, dd.address});
  auto got = dd.get();
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i) {
      int row = l / 4 + (i >= 2 ? 8 : 0), column = l % 4 * 2 + (i & 1);
      float want = o.c[size_t(row * 8 + column)];
      for (int e = 0; e < k; ++e)
        want += o.a[size_t(row * k + e)] * o.b[size_t(e * 8 + column)];
      ASSERT_EQ(got[size_t(l * 4 + i)], want) << row << " " << column;
    }
}

TEST(Mma, SixteenBits) {
  for (bool brain : {false, true})
    for (int k : {8, 16}) {
      Operands o(k);
      auto bits = [&](float x) { return uint32_t(brain ? toBFloat(x) : toHalf(x)); };
      // The elements a_i and b_i of a lane, by the ISA's tables; a register holds two.
      auto a = [&](int l, int i) {
        int row = k == 8 ? l / 4 + (i >= 2 ? 8 : 0) : l / 4 + (i < 2 || (i >= 4 && i < 6) ? 0 : 8);
        int column = l % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0);
        return bits(o.a[size_t(row * k + column)]);
      };
      auto b = [&](int l, int i) { return bits(o.b[size_t((l % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0)) * 8 + l / 4)]); };
      std::string type = brain ? "bf16" : "f16";
      checkProduct(
          "mma.sync.aligned.m16n8k" + std::to_string(k) + ".row.col.f32." + type + "." + type + ".f32", k, k / 4, k / 8,
          [&](int l, int r) { return a(l, 2 * r + 1) << 16 | a(l, 2 * r); },
          [&](int l, int r) { return b(l, 2 * r + 1) << 16 | b(l, 2 * r); }, o);
    }
}

TEST(Mma, Tf32) {
  for (int k : {4, 8}) {
    Operands o(k);
    // The lower 13 bits are not read.
    auto bits = [](float x) { return asBits(x) | 0x1fff; };
    checkProduct(
        "mma.sync.aligned.m16n8k" + std::to_string(k) + ".row.col.f32.tf32.tf32.f32", k, k / 2, k / 4,
        [&](int l, int i) {
          return bits(o.a[size_t((l / 4 + (i == 1 || i == 3 ? 8 : 0)) * k + l % 4 + (i >= 2 ? 4 : 0))]);
        },
        [&](int l, int i) { return bits(o.b[size_t((l % 4 + (i ? 4 : 0)) * 8 + l / 4)]); }, o);
  }
}

// Each element's value encodes its origin: 256 * matrix + 16 * row + column.
TEST(Matrices, LoadAndStore) {
  for (bool trans : {false, true})
    for (int count : {1, 2, 4}) {
      Interpreter on;
      std::vector<uint16_t> values(size_t(64 * count));
      for (int e = 0; e < 64 * count; ++e)
        values[size_t(e)] = uint16_t(e / 64 * 256 + e / 8 % 8 * 16 + e % 8);
      Array<uint16_t> in(on, values), back(on, std::vector<uint16_t>(size_t(64 * count)));
      Array<uint32_t> out(on, std::vector<uint32_t>(128));
      std::string list = count == 1 ? "{%r0}" : count == 2 ? "{%r0,%r1}" : "{%r0,%r1,%r2,%r3}";
      std::string form = ".sync.aligned.m8n8.x" + std::to_string(count) + (trans ? ".trans" : "") + ".shared.b16 ";
      // The first 8 * count lanes each fill a row of shared memory.
      run(on,
          kernel(3,
                 ".reg .b64 %q; .reg .pred %u; .reg .b32 %s, %r<4>; mov.b32 %r0, 0; mov.b32 %r1, 0; mov.b32 %r2, 0; "
                 "mov.b32 %r3, 0;\n"
                 "setp.lt.u32 %u, %t, " +
                     std::to_string(8 * count) +
                     "; mad.wide.u32 %q, %t, 16, %p0; mov.b32 %s, rows; mad.lo.u32 %s, %t, 16, %s;\n"
                     "@%u ld.global.v4.b32 {%r0,%r1,%r2,%r3}, [%q]; @%u st.shared.v4.b32 [%s], {%r0,%r1,%r2,%r3}; "
                     "bar.warp.sync -1;\n"
                     "ldmatrix" +
                     form + list +
                     ", [%s];\n"
                     "mad.wide.u32 %q, %t, 16, %p1; st.global.v4.b32 [%q], {%r0,%r1,%r2,%r3}; bar.warp.sync -1;\n"
                     "stmatrix" +
                     form + "[%s], " + list +
                     "; bar.warp.sync -1;\n"
                     "mad.wide.u32 %q, %t, 16, %p2; @%u ld.shared.v4.b32 {%r0,%r1,%r2,%r3}, [%s]; @%u st.global.v4.b32 "
                     "[%q], {%r0,%r1,%r2,%r3};",
                 ".shared .align 16 .b8 rows[512];"),
          {}, {32, 1, 1}, {in.address, out.address, back.address});
      auto got = out.get();
      for (int l = 0; l < 32; ++l)
        for (int m = 0; m < count; ++m)
          for (int e = 0; e < 2; ++e) {
            int row = trans ? l % 4 * 2 + e : l / 4, column = trans ? l / 4 : l % 4 * 2 + e;
            ASSERT_EQ(got[size_t(l * 4 + m)] >> (16 * e) & 0xffff, uint32_t(m * 256 + row * 16 + column))
                << l << " " << m;
          }
      EXPECT_EQ(back.get(), values);
    }
}

// Bytes beyond the source's size are zero-filled, whatever lies there; a predicate ignores the source.
TEST(CopyAsync, ZeroFill) {
  Interpreter on({.checks = true});
  Array<uint32_t> in(on, std::vector<uint32_t>(7, 0x01020304)), out(on, std::vector<uint32_t>(12));
  run(on,
      kernel(2,
             ".reg .b32 %a<4>, %s; .reg .pred %q; mov.u32 %s, 6; setp.eq.u32 %q, %t, 0;\n"
             "cp.async.ca.shared.global [tile], [%p0], 16, %s; cp.async.cg.shared.global [tile+16], [%p0+16], 16, 12;\n"
             "cp.async.ca.shared.global [tile+32], [%p0], 8, %q; cp.async.ca.shared.global [tile+40], [%p0], 8, !%q;\n"
             "cp.async.wait_all; ld.shared.v4.b32 {%a0, %a1, %a2, %a3}, [tile]; st.global.v4.b32 [%p1], {%a0, %a1, "
             "%a2, %a3};\n"
             "ld.shared.v4.b32 {%a0, %a1, %a2, %a3}, [tile+16]; st.global.v4.b32 [%p1+16], {%a0, %a1, %a2, %a3};\n"
             "ld.shared.v4.b32 {%a0, %a1, %a2, %a3}, [tile+32]; st.global.v4.b32 [%p1+32], {%a0, %a1, %a2, %a3};",
             ".shared .align 16 .b8 tile[48];"),
      {}, {}, {in.address, out.address});
  constexpr uint32_t x = 0x01020304;
  EXPECT_EQ(out.get(), (std::vector<uint32_t>{x, 0x0304, 0, 0, x, x, x, 0, 0, 0, x, x}));
}

// C = A * B^T in f32, 64 x 64 tiles of 16 k, two stages of cp.async, 64 threads with one row of C each. k = 40 leaves a
// last tile of 8, whose remainder cp.async fills with zeros; M and N are multiples of the tile.
TEST(Tiled, CopyAsync) {
  constexpr int M = 64, N = 64, K = 40;
  const std::string text = header + R"(
.extern .shared .align 16 .b8 tiles[];
.visible .entry gemm(.param .u64 a, .param .u64 b, .param .u64 c)
.reqntid 64
{
.reg .b64 %a, %b, %c, %ga, %gb;
.reg .b32 %t, %k, %next, %left, %size, %stage, %other, %base, %sa, %sb, %n, %j, %row;
.reg .f32 %x, %y, %sum;
.reg .pred %p, %q;
ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %c, [c];
mov.u32 %t, %tid.x;
mad.wide.u32 %a, %t, 160, %a; // the thread's row of A and of B
mad.wide.u32 %b, %t, 160, %b;
mad.wide.u32 %c, %t, 256, %c;
mov.u32 %k, 0; mov.u32 %stage, 0; mov.u32 %next, 0;
mov.u32 %base, tiles;
mul.lo.u32 %row, %t, 64;
mov.u32 %n, 0;
CLEAR:
mad.wide.u32 %ga, %n, 4, %c;
st.global.f32 [%ga], 0f00000000;
add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 64; @%p bra CLEAR;
{ // the first tile
add.u32 %sa, %base, %row;
cp.async.cg.shared.global [%sa], [%a], 16;
cp.async.cg.shared.global [%sa+16], [%a+16], 16;
cp.async.cg.shared.global [%sa+32], [%a+32], 16;
cp.async.cg.shared.global [%sa+48], [%a+48], 16;
cp.async.cg.shared.global [%sa+4096], [%b], 16;
cp.async.cg.shared.global [%sa+4112], [%b+16], 16;
cp.async.cg.shared.global [%sa+4128], [%b+32], 16;
cp.async.cg.shared.global [%sa+4144], [%b+48], 16;
cp.async.commit_group;
}
LOOP:
add.u32 %next, %k, 16;
setp.ge.u32 %p, %next, 40;
@%p bra NONE;
xor.b32 %other, %stage, 8192;
add.u32 %sa, %base, %row; add.u32 %sa, %sa, %other;
mad.wide.u32 %ga, %next, 4, %a; mad.wide.u32 %gb, %next, 4, %b;
mov.u32 %j, 0;
PIECE:
{ .reg .b64 %u; .reg .s32 %z;
mad.lo.u32 %z, %next, 4, %j; sub.s32 %z, 160, %z; max.s32 %z, %z, 0; min.s32 %z, %z, 16; // bytes of the row that are left
mov.u32 %size, %z;
add.u32 %left, %sa, %j; cvt.u64.u32 %u, %j;
.reg .b64 %v; setp.eq.u32 %q, %size, 0; selp.b64 %u, 0, %u, %q;
add.u64 %v, %ga, %u; @%q mov.u64 %v, %a; cp.async.ca.shared.global [%left], [%v], 16, %size;
add.u64 %v, %gb, %u; @%q mov.u64 %v, %b; cp.async.ca.shared.global [%left+4096], [%v], 16, %size;
}
add.u32 %j, %j, 16; setp.lt.u32 %q, %j, 64; @%q bra PIECE;
NONE:
cp.async.commit_group;
cp.async.wait_group 1;
bar.sync 0;
mov.u32 %n, 0;
COLUMN:
mad.wide.u32 %ga, %n, 4, %c;
ld.global.f32 %sum, [%ga];
add.u32 %sa, %base, %row; add.u32 %sa, %sa, %stage;
mad.lo.u32 %sb, %n, 64, %base; add.u32 %sb, %sb, %stage;
mov.u32 %j, 0;
INNER:
ld.shared.f32 %x, [%sa]; ld.shared.f32 %y, [%sb+4096];
fma.rn.f32 %sum, %x, %y, %sum;
add.u32 %sa, %sa, 4; add.u32 %sb, %sb, 4; add.u32 %j, %j, 1;
setp.lt.u32 %q, %j, 16; @%q bra INNER;
st.global.f32 [%ga], %sum;
add.u32 %n, %n, 1; setp.lt.u32 %q, %n, 64; @%q bra COLUMN;
bar.sync 0;
xor.b32 %stage, %stage, 8192;
mov.u32 %k, %next;
setp.lt.u32 %p, %k, 40;
@%p bra LOOP;
ret;
}
)";
  for (bool checks : {false, true}) {
    Interpreter on({.checks = checks});
    std::mt19937 random(5);
    std::vector<float> a(M * K), b(N * K), want(M * N);
    for (auto *m : {&a, &b})
      for (float &x : *m)
        x = float(int(random() % 33) - 16) / 4;
    for (int m = 0; m < M; ++m)
      for (int n = 0; n < N; ++n)
        for (int k = 0; k < K; ++k)
          want[size_t(m * N + n)] += a[size_t(m * K + k)] * b[size_t(n * K + k)];
    Array<float> da(on, a), db(on, b), dc(on, want);
    run(on, text, {}, {64, 1, 1}, {da.address, db.address, dc.address}, 16384);
    EXPECT_EQ(dc.get(), want);
  }
}

} // namespace
