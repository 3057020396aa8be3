// Tests divergence and reconvergence of lanes, shuffles and votes, barriers, memory spaces and calls, and that
// forbidden actions are caught.
#include "Fixture.h"
#include <numeric>

using namespace xfc::ptx;
using namespace xfc::ptx::test;

namespace {

using U = std::vector<uint32_t>;

// Runs `body`, which computes a 32-bit %r per thread, and returns the results.
U results(const std::string &body, uint32_t threads = 32, uint32_t blocks = 1, const std::string &before = "",
          Options options = {}) {
  Interpreter on(options);
  Array<uint32_t> out(on, U(threads * blocks));
  run(on,
      kernel(1,
             ".reg .b32 %r, %x<8>; .reg .pred %q<8>; .reg .b64 %y<8>;\n" + body +
                 "\n{ .reg .b32 %c, %n; mov.u32 %c, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %c, %c, %n, %t;\n"
                 "mad.wide.u32 %p0, %c, 4, %p0; st.global.b32 [%p0], %r; }",
             before),
      {blocks, 1, 1}, {threads, 1, 1}, {out.address});
  return out.get();
}

// Collatz steps: each lane leaves the loop at a different time, after branches in which lanes diverge.
TEST(Divergence, LoopsAndBranches) {
  U got = results("add.u32 %x0, %t, 1; mov.u32 %r, 0;\n"
                  "HEAD: setp.eq.u32 %q0, %x0, 1; @%q0 bra DONE;\n"
                  "and.b32 %x1, %x0, 1; setp.ne.u32 %q1, %x1, 0; @%q1 bra ODD;\n"
                  "shr.u32 %x0, %x0, 1; bra NEXT;\n"
                  "ODD: mad.lo.u32 %x0, %x0, 3, 1;\n"
                  "NEXT: add.u32 %r, %r, 1; bra HEAD;\n"
                  "DONE: activemask.b32 %x2; popc.b32 %x2, %x2; mad.lo.u32 %r, %x2, 1000, %r;",
                  70);
  for (uint32_t t = 0; t < 70; ++t) {
    uint32_t steps = 0, together = std::min(32u, 70 - t / 32 * 32);
    for (uint32_t x = t + 1; x != 1; ++steps)
      x = x % 2 ? 3 * x + 1 : x / 2;
    EXPECT_EQ(got[t], together * 1000 + steps) << t;
  }
}

TEST(Divergence, SomeLanesExit) {
  Interpreter on;
  Array<uint32_t> out(on, U(64, 7));
  // Odd threads exit inside a branch; the others reconverge, also at the barrier.
  run(on,
      kernel(1, ".reg .pred %q; .reg .b32 %x; add.u64 %p0, %p0, %t4; and.b32 %x, %t, 1; setp.eq.u32 %q, %x, 0; @%q bra "
                "EVEN;\n"
                "setp.lt.u32 %q, %t, 100; @%q exit;\nEVEN: bar.sync 0; activemask.b32 %x; st.global.b32 [%p0], %x;"),
      {}, {64, 1, 1}, {out.address});
  auto got = out.get();
  for (uint32_t t = 0; t < 64; ++t)
    EXPECT_EQ(got[t], t % 2 ? 7 : 0x55555555u);
}

TEST(Divergence, JumpTable) {
  U got = results("rem.u32 %x0, %t, 3; TARGETS: .branchtargets A, B, C; brx.idx %x0, TARGETS;\n"
                  "A: mov.u32 %r, 10; bra END; B: mov.u32 %r, 20; bra END; C: mov.u32 %r, 30; END: activemask.b32 %x1; "
                  "add.u32 %r, %r, %x1;");
  for (uint32_t t = 0; t < 32; ++t)
    EXPECT_EQ(got[t], (t % 3 + 1) * 10 - 1);
}

TEST(Calls, ParametersAndResults) {
  std::string square =
      ".func (.param .b32 out) square(.param .b32 in, .param .b64 add)\n{ .reg .b32 %a; .reg .b64 %b; .reg .pred %q;\n"
      "ld.param.b32 %a, [in]; ld.param.b64 %b, [add]; setp.gt.u32 %q, %a, 5; @%q bra BIG;\n"
      "mul.lo.u32 %a, %a, %a; st.param.b32 [out], %a; ret;\n"
      "BIG: cvt.u32.u64 %a, %b; st.param.b32 [out], %a; ret; }\n";
  U got = results("cvt.u64.u32 %y0, %t;\n{ .param .b32 i; .param .b64 j; .param .b32 o; st.param.b32 [i], %t; "
                  "st.param.b64 [j], %y0;\n"
                  "call.uni (o), square, (i, j);\nld.param.b32 %r, [o]; }",
                  32, 1, square);
  for (uint32_t t = 0; t < 32; ++t)
    EXPECT_EQ(got[t], t > 5 ? t : t * t);
}

TEST(Memory, LocalConstAndGeneric) {
  // Per-thread local memory, a table of constants, and both through generic addresses.
  U got = results(".local .align 8 .b8 frame[8]; mov.u64 %y0, frame; cvta.local.u64 %y1, %y0; st.local.u32 [%y0+4], "
                  "%t; ld.u32 %r, [%y1+4];\n"
                  "mov.u64 %y2, table; and.b32 %x0, %t, 3; mad.wide.u32 %y2, %x0, 4, %y2; ld.const.u32 %x1, [%y2]; "
                  "add.u32 %r, %r, %x1;\n"
                  "mov.u64 %y3, word; cvta.shared.u64 %y3, %y3; setp.eq.u32 %q0, %t, 0; @%q0 st.u32 [%y3], 1000; "
                  "bar.sync 0; ld.shared.u32 %x2, [word];\n"
                  "add.u32 %r, %r, %x2;",
                  64, 1, ".const .align 4 .b32 table[4] = {100, 200, 0x12C, 400};\n.shared .align 4 .b32 word;");
  for (uint32_t t = 0; t < 64; ++t)
    EXPECT_EQ(got[t], t + (t % 4 + 1) * 100 + 1000);
}

TEST(Memory, BytesAndVectors) {
  Interpreter on;
  Array<uint8_t> in(on, {0x80, 1, 0x7f, 0xff, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  Array<uint32_t> out(on, U(8));
  run(on,
      kernel(
          2,
          ".reg .b32 %a<4>; .reg .b16 %h<2>; .reg .b64 %x<2>;\nld.global.s8 %a0, [%p0]; ld.global.u8 %h0, [%p0+3]; "
          "cvt.u32.u16 %a1, %h0;\n"
          "ld.global.v2.b64 {%x0, %x1}, [%p0]; mov.b64 {%a2, %a3}, %x1; st.global.v4.b32 [%p1], {%a0, %a1, %a2, %a3};\n"
          "ld.global.nc.L1::no_allocate.v2.u16 {%h0, %h1}, [%p0]; st.global.v2.u16 [%p1+16], {%h1, %h0}; st.global.u8 "
          "[%p1+20], %a1;"),
      {}, {}, {in.address, out.address});
  EXPECT_EQ(out.get(), (U{0xffffff80, 0xff, 0x0c0b0a09, 0x100f0e0d, 0x0180ff7f, 0xff, 0, 0}));
}

TEST(Memory, Atomics) {
  Interpreter on({.threads = 3});
  Array<uint32_t> out(on, {0, 0, 1000, 5});
  Array<float> sum(on, {0});
  run(on,
      kernel(2, ".reg .b32 %a, %b; atom.global.add.u32 %a, [%p0], %t; red.global.max.u32 [%p0+4], %t; "
                "red.global.min.s32 [%p0+8], %t;\n"
                "atom.global.cas.b32 %b, [%p0+12], 5, %t; red.global.add.f32 [%p1], 0f3F000000;"),
      {3, 1, 1}, {40, 1, 1}, {out.address, sum.address});
  EXPECT_EQ(out.get(), (U{3 * 780, 39, 0, 0}));
  EXPECT_EQ(sum.get()[0], 60);
}

// The ISA's pseudo-code of shfl, for all modes and a segment of 8 lanes.
TEST(Warp, Shuffles) {
  struct {
    const char *mode;
    int b, c;
  } cases[] = {{"up", 3, 0},      {"down", 5, 31},     {"bfly", 16, 31},    {"idx", 9, 31},
               {"up", 2, 0x1800}, {"down", 3, 0x181f}, {"bfly", 4, 0x181f}, {"idx", 5, 0x181f}};
  for (auto &s : cases) {
    U got =
        results("add.u32 %x0, %t, 100; shfl.sync." + std::string(s.mode) + ".b32 %x1|%q0, %x0, " + std::to_string(s.b) +
                ", " + std::to_string(s.c) + ", -1;\nselp.u32 %x2, 1000, 0, %q0; add.u32 %r, %x1, %x2;");
    for (int lane = 0; lane < 32; ++lane) {
      int segment = s.c >> 8 & 31, clamp = s.c & 31, highest = (lane & segment) | (clamp & ~segment),
          lowest = lane & segment, j;
      bool p;
      switch (s.mode[0]) {
      case 'u':
        j = lane - s.b, p = j >= highest;
        break;
      case 'd':
        j = lane + s.b, p = j <= highest;
        break;
      case 'b':
        j = lane ^ s.b, p = j <= highest;
        break;
      default:
        j = lowest | (s.b & ~segment), p = j <= highest;
      }
      EXPECT_EQ(got[size_t(lane)], uint32_t(100 + (p ? j : lane) + (p ? 1000 : 0))) << s.mode << " " << lane;
    }
  }
}

TEST(Warp, VotesMatchesAndReductions) {
  EXPECT_EQ(results("setp.lt.u32 %q0, %t, 5; vote.sync.ballot.b32 %r, %q0, -1;")[9], 31u);
  EXPECT_EQ(results("setp.lt.u32 %q0, %t, 5; vote.sync.any.pred %q1, !%q0, -1; vote.sync.all.pred %q2, %q0, -1; "
                    "selp.u32 %r, 1, 0, %q1;\n"
                    "selp.u32 %x0, 2, 0, %q2; or.b32 %r, %r, %x0;")[0],
            1u);
  EXPECT_EQ(results("and.b32 %x0, %t, 3; match.any.sync.b32 %r, %x0, -1;")[6], 0x44444444u);
  EXPECT_EQ(results("redux.sync.add.s32 %r, %t, -1;")[3], 496u);
  EXPECT_EQ(results("sub.s32 %x0, %t, 5; redux.sync.min.s32 %r, %x0, -1;")[3], uint32_t(-5));
  EXPECT_EQ(results("mov.u32 %r, 0; elect.sync _|%q0, -1; @%q0 mov.u32 %r, 1;")[0], 1u);
  // Halves of a warp reduce separately.
  U got = results("setp.lt.u32 %q0, %t, 16; @%q0 bra LOW; redux.sync.max.u32 %r, %t, 0xffff0000; bra END; LOW: "
                  "redux.sync.max.u32 %r, %t, 0xffff; END:");
  EXPECT_EQ(got[0], 15u);
  EXPECT_EQ(got[16], 31u);
}

// Partial sums in shared memory over many warps; the result is the same for any number of host threads.
TEST(Barriers, Reduction) {
  std::string body =
      "mov.u32 %x0, %ctaid.x; mad.lo.u32 %x1, %x0, 7, %t; mov.u32 %x2, buffer; mad.lo.u32 %x3, %t, 4, %x2; "
      "st.shared.u32 [%x3], %x1;\n"
      "mov.u32 %x4, 64;\nHALF: bar.sync 0; setp.lt.u32 %q0, %t, %x4; mad.lo.u32 %x5, %x4, 4, %x3;\n"
      "@%q0 ld.shared.u32 %x6, [%x5]; @%q0 ld.shared.u32 %x7, [%x3]; @%q0 add.u32 %x7, %x7, %x6; @%q0 st.shared.u32 "
      "[%x3], %x7;\n"
      "shr.u32 %x4, %x4, 1; setp.gt.u32 %q0, %x4, 0; @%q0 bra HALF;\nbar.sync 0; ld.shared.u32 %r, [buffer];";
  for (int threads : {1, 2})
    for (bool checks : {false, true}) {
      U got = results(body, 128, 5, ".shared .align 4 .b8 buffer[512];", {.threads = threads, .checks = checks});
      for (uint32_t b = 0; b < 5; ++b)
        EXPECT_EQ(got[b * 128 + 3], b * 7 * 128 + 127 * 64);
    }
}

// A producer warp hands words to a consumer warp with counted named barriers.
TEST(Barriers, NamedWithCounts) {
  U got = results("mov.u32 %r, 0; mov.u32 %x0, 0; setp.ge.u32 %q0, %t, 32; @%q0 bra CONSUME;\n"
                  "PRODUCE: mad.lo.u32 %x1, %x0, 10, %t; mov.u32 %x4, words; mad.lo.u32 %x2, %t, 4, %x4; st.shared.u32 "
                  "[%x2], %x1; bar.arrive 1, 64; bar.sync 2, 64;\n"
                  "add.u32 %x0, %x0, 1; setp.lt.u32 %q1, %x0, 3; @%q1 bra PRODUCE; bra END;\n"
                  "CONSUME: bar.sync 1, 64; sub.u32 %x2, %t, 32; mov.u32 %x4, words; mad.lo.u32 %x2, %x2, 4, %x4; "
                  "ld.shared.u32 %x3, [%x2]; add.u32 %r, %r, %x3; bar.arrive 2, 64;\n"
                  "add.u32 %x0, %x0, 1; setp.lt.u32 %q1, %x0, 3; @%q1 bra CONSUME;\nEND:",
                  64, 1, ".shared .align 4 .b8 words[128];");
  for (uint32_t t = 32; t < 64; ++t)
    EXPECT_EQ(got[t], 3 * (t - 32) + 30);
}

TEST(Barriers, Reductions) {
  EXPECT_EQ(results("setp.lt.u32 %q0, %t, 40; bar.red.popc.u32 %r, 0, %q0;", 64)[50], 40u);
  EXPECT_EQ(results("setp.lt.u32 %q0, %t, 40; bar.red.or.pred %q1, 0, !%q0; selp.u32 %r, 1, 0, %q1;", 64)[3], 1u);
}

// ---- what must be caught

TEST(Faults, Bounds) {
  Interpreter on;
  Array<uint32_t> out(on, U(10));
  std::string store = kernel(1, "add.u64 %p0, %p0, %t4;\nst.global.u32 [%p0], %t;");
  std::string text = faultOf(store, 11, {out.address}, on);
  EXPECT_TRUE(contains(text, "kernel test, PTX line 15, block (0,0,0), thread (10,0,0): global memory out of bounds: 4 "
                             "bytes at offset 40 of an allocation of 40 bytes"))
      << text;
  EXPECT_EQ(faultOf(store, 10, {out.address}, on), "");
  on.free(out.address);
  EXPECT_TRUE(contains(faultOf(store, 1, {out.address}, on), "that was freed"));
  EXPECT_TRUE(contains(faultOf(store, 1, {0}, on), "no device memory is there"));
  Array<uint32_t> other(on, U(10));
  EXPECT_TRUE(contains(faultOf(kernel(1, "st.global.u32 [%p0+2], %t;"), 1, {other.address}, on), "misaligned address"));
  std::string shared = kernel(0, ".reg .b32 %x; mov.u32 %x, %t; shl.b32 %x, %x, 2; st.shared.u32 [%x], %t;");
  EXPECT_EQ(faultOf(shared, 8, {}, on, 32), "");
  EXPECT_TRUE(
      contains(faultOf(shared, 9, {}, on, 32), "thread (8,0,0): shared memory out of bounds: 4 bytes at 32 of 32"));
  EXPECT_TRUE(contains(faultOf(kernel(0, "mov.u64 %t8, c; st.u32 [%t8], 1;", ".const .b32 c = 3;"), 1, {}, on),
                       "a write to constant memory"));
}

TEST(Faults, Convergence) {
  Interpreter on;
  EXPECT_TRUE(
      contains(faultOf(kernel(0, ".reg .pred %q; setp.lt.u32 %q, %t, 7; @%q bra IN; bra OUT;\nIN: bar.sync 0;\nOUT:"),
                       32, {}, on),
               "divergent barrier: only a part of the warp is here, lanes 7 of 32"));
  EXPECT_TRUE(contains(
      faultOf(kernel(0, ".reg .pred %q; .reg .b32 %x; setp.lt.u32 %q, %t, 7; @%q shfl.sync.idx.b32 %x, %t, 0, 31, -1;"),
              32, {}, on),
      "divergent: lanes 0xffffffff are named and lanes 0x0000007f are here"));
  EXPECT_TRUE(contains(faultOf(kernel(0, ".reg .pred %q; setp.lt.u32 %q, %t, 32; @%q bar.sync 1, 64;"), 64, {}, on),
                       "deadlock"));
  EXPECT_TRUE(
      contains(faultOf(kernel(0, ".reg .b32 %x; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%x}, [0];"), 31, {}, on, 128),
               "divergent: 31 of 32 lanes"));
  EXPECT_TRUE(contains(faultOf(kernel(0, "trap;"), 1, {}, on), "trap"));
}

TEST(Launches, Limits) {
  Interpreter on({.memory = 1000});
  EXPECT_THROW(on.allocate(1001), Error);
  std::string text = header + ".visible .entry k() .reqntid 32 { ret; }";
  EXPECT_TRUE(contains(faultOf(text, 33, {}, on), "at most 32"));
  EXPECT_TRUE(contains(faultOf(text, 16, {}, on), "where .reqntid is (32,1,1)"));
  EXPECT_EQ(faultOf(text, 32, {}, on), "");
}

} // namespace
