// Tests the checks for races and for reads of uninitialized shared memory: programs that must be caught, and their
// repaired twins.
#include "Fixture.h"

using namespace xfc::ptx;
using namespace xfc::ptx::test;

namespace {

const std::string before = ".shared .align 16 .b8 s[1024];";
// %x0: the thread's word, %x1: the next thread's, %x2: that of the thread 32 lanes away.
const std::string addresses = ".reg .b32 %x<8>; .reg .pred %q; .reg .b64 %g; mov.u32 %x0, s; add.u32 %x1, %t, 1; "
                              "and.b32 %x1, %x1, 31; mad.lo.u32 %x1, %x1, 4, %x0;\n"
                              "xor.b32 %x2, %t, 32; mad.lo.u32 %x2, %x2, 4, %x0; mad.lo.u32 %x0, %t, 4, %x0;\n";

void expectCaught(const std::string &body, const std::string &reason, uint32_t threads = 64) {
  Interpreter on({.checks = true}), blind;
  Array<uint32_t> memory(on, std::vector<uint32_t>(256)), unchecked(blind, std::vector<uint32_t>(256));
  std::string text = faultOf(kernel(1, addresses + body, before), threads, {memory.address}, on);
  EXPECT_NE(text.find(reason), std::string::npos) << "found: " << text;
  EXPECT_EQ(faultOf(kernel(1, addresses + body, before), threads, {unchecked.address}, blind), "");
}
void expectClean(const std::string &body, uint32_t threads = 64) {
  Interpreter on({.checks = true});
  Array<uint32_t> memory(on, std::vector<uint32_t>(256));
  EXPECT_EQ(faultOf(kernel(1, addresses + body, before), threads, {memory.address}, on), "");
}

TEST(Shared, NeverWritten) {
  expectCaught("st.shared.u16 [%x0], 1; ld.shared.u32 %x3, [%x0];",
               "thread (0,0,0): a read of shared byte 2, which nothing has written");
  expectClean("st.shared.u32 [%x0], 1; ld.shared.u32 %x3, [%x0];");
  expectCaught("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%x3}, [s];", "nothing has written", 32);
}

TEST(Shared, WriteThenRead) {
  // The second warp's first word, which the first warp wrote.
  expectCaught("setp.ge.u32 %q, %t, 32; @%q bra R; st.shared.u32 [%x0], %t; st.shared.u32 [%x2], %t; R:\nld.shared.u32 "
               "%x3, [%x0];",
               "PTX line 17, block (0,0,0), thread (32,0,0): race on shared byte 128, which thread (0,0,0) has written "
               "at PTX line 16: nothing orders the two");
  expectClean("st.shared.u32 [%x0], %t; bar.sync 0; ld.shared.u32 %x3, [%x2];");
}

TEST(Shared, ReadThenWrite) {
  expectCaught("st.shared.u32 [%x0], %t; bar.sync 0; ld.shared.u32 %x3, [%x2]; st.shared.u32 [%x0], 0;",
               "race on shared byte 128, which thread (32,0,0) has written at PTX line 16");
  expectCaught("st.shared.u32 [%x0], %t; bar.sync 0; setp.lt.u32 %q, %t, 32; @%q bra W; ld.shared.u32 %x3, [%x2]; bra "
               "E; W: st.shared.u32 [%x0], 0; E:",
               "race on shared byte 0, which thread (32,0,0) has read: nothing orders");
  expectClean("st.shared.u32 [%x0], %t; bar.sync 0; ld.shared.u32 %x3, [%x2]; bar.sync 0; st.shared.u32 [%x0], 0;");
}

TEST(Shared, WriteThenWrite) {
  expectCaught("st.shared.u32 [s], %t;", "thread (1,0,0): race on shared byte 0, which thread (0,0,0) has written");
}

TEST(Shared, LanesOfAWarp) {
  expectCaught("st.shared.u32 [%x0], %t; ld.shared.u32 %x3, [%x1];",
               "thread (0,0,0): race on shared byte 4, which thread (1,0,0) has written", 32);
  expectCaught("st.shared.u32 [%x0], %t; shfl.sync.idx.b32 %x4, %t, 0, 31, -1; ld.shared.u32 %x3, [%x1];",
               "race on shared byte 4", 32);
  expectClean("st.shared.u32 [%x0], %t; bar.warp.sync -1; ld.shared.u32 %x3, [%x1];", 32);
  expectCaught("st.shared.u32 [%x0], %t; bar.warp.sync -1; ld.shared.u32 %x3, [%x1]; st.shared.u32 [%x0], 0;",
               "has read", 32);
}

// Accesses of different threads to neighbouring pieces of 2 bytes, or of 1 byte, are no race: bytes are tracked
// together only if every access of the kernel covers them together.
TEST(Shared, Neighbours) {
  const std::string word = "shr.u32 %x3, %t, 1; and.b32 %x4, %t, 1;", half = word + "mad.lo.u32 %x3, %x3, 4, s;",
                    own = half + "mad.lo.u32 %x3, %x4, 2, %x3; st.shared.u16 [%x3], %t;";
  expectClean(own + "bar.sync 0;" + half + "ld.shared.u32 %x5, [%x3];");
  expectClean(own + "bar.sync 0;" + half + "ld.shared.v2.u16 {%x5, %x6}, [%x3];");
  expectCaught(half + "st.shared.u16 [%x3], %t;", "thread (1,0,0): race on shared byte 0, which thread (0,0,0) has");
  expectClean("add.u32 %x3, %t, s; st.shared.u8 [%x3], %t; bar.sync 0; ld.shared.u32 %x5, [s];");
  expectCaught("shr.u32 %x3, %t, 1; add.u32 %x3, %x3, s; st.shared.u8 [%x3], %t;", "race on shared byte 0");
}

// A read that is in order for one lane, or for its warp, is none for another one.
TEST(Shared, ReadsByOthers) {
  const std::string one = "setp.eq.u32 %q, %t, 0; @%q st.shared.u32 [s], %t; @%q ld.shared.u32 %x3, [s];";
  expectClean(one + "bar.sync 0; ld.shared.u32 %x4, [s];");
  expectCaught(one + "ld.shared.u32 %x4, [s];", "thread (1,0,0): race on shared byte 0, which thread (0,0,0) has");
  expectCaught(
      "setp.lt.u32 %q, %t, 32; @%q st.shared.u32 [%x0], %t; @%q bar.warp.sync -1; @%q ld.shared.u32 %x3, [%x1]; "
      "@!%q ld.shared.u32 %x4, [%x2];",
      "thread (32,0,0): race on shared byte 0, which thread (0,0,0) has");
}

// Barriers between other warps do not help.
TEST(Shared, NamedBarriers) {
  std::string produce =
                  "setp.ge.u32 %q, %t, 32; @%q bra C; st.shared.u32 [%x0], %t; bar.arrive 1, 64; bra E; C: bar.sync ",
              consume = ", 64; ld.shared.u32 %x3, [%x2]; E:";
  expectClean(produce + "1" + consume);
  expectCaught("setp.ge.u32 %q, %t, 32; @%q bra C; bar.arrive 1, 64; st.shared.u32 [%x0], %t; bra E; C: bar.sync 1, "
               "64; ld.shared.u32 %x3, [%x2]; E:",
               "race on shared byte 0");
}

TEST(Shared, AsynchronousCopies) {
  std::string copy = "mad.wide.u32 %g, %t, 4, %p0; cp.async.ca.shared.global [%x0], [%g], 4; cp.async.commit_group;\n";
  expectCaught(copy + "bar.sync 0; ld.shared.u32 %x3, [%x2];",
               "shared byte 0 is accessed while a cp.async of thread (0,0,0) at PTX line 16 is not waited for");
  expectCaught(copy + "cp.async.wait_group 1; ld.shared.u32 %x3, [%x0];", "is not waited for");
  expectCaught(
      copy + "cp.async.wait_group 0; bar.warp.sync -1; setp.lt.u32 %q, %t, 32; @%q bra E; ld.shared.u32 %x3, [%x2]; E:",
      "race on shared byte 0, which thread (0,0,0) has written at PTX line 16");
  expectCaught(copy + "cp.async.wait_group 0; ld.shared.u32 %x3, [%x1];",
               "race on shared byte 4, which thread (1,0,0) has written", 32);
  expectClean(copy + "cp.async.wait_group 0; ld.shared.u32 %x3, [%x0];");
  expectClean(copy + "cp.async.wait_all; bar.sync 0; ld.shared.u32 %x3, [%x2];");
  // A stage is refilled while another warp still reads it.
  expectCaught("st.shared.u32 [%x0], %t; bar.sync 0; ld.shared.u32 %x3, [%x2];\n" + copy,
               "shared byte 128 is accessed while a cp.async of thread (32,0,0) at PTX line 17 is not waited for");
  expectCaught(
      "st.shared.u32 [%x0], %t; bar.sync 0; setp.lt.u32 %q, %t, 32; @%q bra W; ld.shared.u32 %x3, [%x2]; bra E;\nW: " +
          copy + "E:",
      "race on shared byte 0, which thread (32,0,0) has read");
}

TEST(Shared, Atomics) {
  expectClean("st.shared.u32 [%x0], 0; bar.sync 0; atom.shared.add.u32 %x3, [s], 1;");
  expectCaught("st.shared.u32 [%x0], 0; bar.sync 0; atom.shared.add.u32 %x3, [s], 1; ld.shared.u32 %x4, [s];",
               "race on shared byte 0");
}

TEST(Global, BetweenBlocks) {
  auto check = [](const std::string &body, bool checks, uint32_t blocks) {
    Interpreter on({.threads = 2, .checks = checks});
    Array<uint32_t> memory(on, std::vector<uint32_t>(256));
    return faultOf(kernel(1, ".reg .b32 %c, %x; .reg .b64 %g; mov.u32 %c, %ctaid.x;\n" + body), 1, {memory.address}, on,
                   0, blocks);
  };
  std::string sameWord = "st.global.u32 [%p0+8], %c;",
              own = "mad.wide.u32 %g, %c, 4, %p0; st.global.u32 [%g], %c; ld.global.u32 %x, [%g];";
  EXPECT_EQ(check(sameWord, true, 2), "kernel test, PTX line 15, block (1,0,0), thread (0,0,0): race on global memory: "
                                      "byte 8 of an allocation of 1024 bytes is written here and was "
                                      "written by block (0,0,0) of the same launch");
  EXPECT_EQ(check(sameWord, false, 2), "");
  EXPECT_EQ(check(sameWord, true, 1), "");
  EXPECT_EQ(check(own, true, 9), "");
  EXPECT_NE(check(own + "ld.global.u32 %x, [%p0];", true, 2).find("is read here and was written by block (0,0,0)"),
            std::string::npos);
  EXPECT_NE(check("ld.global.u32 %x, [%p0+12];" + own, true, 5).find("is written here and was read by other blocks"),
            std::string::npos);
  EXPECT_EQ(check("red.global.add.u32 [%p0], 1;", true, 5), "");
  EXPECT_NE(check("ld.global.nc.u32 %x, [%p0]; st.global.u32 [%p0], %x;", true, 1)
                .find("byte 0 of an allocation of 1024 bytes is written and read by ld.global.nc"),
            std::string::npos);
  EXPECT_NE(check("st.global.u32 [%p0], %c; ld.global.nc.u32 %x, [%p0];", true, 1).find("ld.global.nc in one launch"),
            std::string::npos);
  EXPECT_EQ(check("ld.global.nc.u32 %x, [%p0]; ld.global.u32 %x, [%p0];", true, 3), "");
  // Adjacent halves of a word, and adjacent bytes, are no race.
  EXPECT_EQ(check("mad.wide.u32 %g, %c, 2, %p0; st.global.u16 [%g], %c;", true, 9), "");
  EXPECT_EQ(check("cvt.u64.u32 %g, %c; add.u64 %g, %g, %p0; st.global.u8 [%g], %c;", true, 9), "");
}

TEST(Global, Prefetches) {
  Interpreter on;
  Array<uint32_t> memory(on, std::vector<uint32_t>(4));
  EXPECT_EQ(faultOf(kernel(1, "prefetch.global.L2 [%p0+15];"), 1, {memory.address}, on), "");
  EXPECT_NE(
      faultOf(kernel(1, "prefetch.global.L2 [%p0+16];"), 1, {memory.address}, on).find("prefetch of global memory"),
      std::string::npos);
}

// %g0: the thread's word, %g1: the next thread's, %g2: that of the thread 32 lanes away.
const std::string globals =
    ".reg .b32 %n; .reg .b64 %g<3>; add.u32 %n, %t, 1; and.b32 %n, %n, 31; mad.wide.u32 %g1, %n, 4, %p0;\n"
    "xor.b32 %n, %t, 32; mad.wide.u32 %g2, %n, 4, %p0; add.u64 %g0, %p0, %t4; .reg .b32 %x<8>; .reg .pred %q;\n";

std::string within(const std::string &body, bool checks, uint32_t threads, uint32_t blocks) {
  Interpreter on({.checks = checks});
  Array<uint32_t> memory(on, std::vector<uint32_t>(256));
  return faultOf(kernel(1, globals + body, before), threads, {memory.address}, on, 0, blocks);
}
void expectWithin(const std::string &body, const std::string &reason, uint32_t threads = 64) {
  std::string text = within(body, true, threads, 1);
  EXPECT_NE(text.find(reason), std::string::npos) << "found: " << text;
  EXPECT_EQ(within(body, false, threads, 1), "");
}
void expectNoneWithin(const std::string &body, uint32_t threads = 64, uint32_t blocks = 1) {
  EXPECT_EQ(within(body, true, threads, blocks), "");
}

TEST(Global, WriteThenReadWithinABlock) {
  expectWithin("setp.ge.u32 %q, %t, 32; @%q bra R; st.global.u32 [%g0], %t; bra E; R: ld.global.u32 %x0, [%g2]; E:",
               "thread (32,0,0): race on global memory: byte 0 of an allocation of 1024 bytes is read here and was "
               "written by thread (0,0,0) at PTX line 16: "
               "nothing orders the two");
  expectNoneWithin("st.global.u32 [%g0], %t; bar.sync 0; ld.global.u32 %x0, [%g2];");
  expectNoneWithin("st.global.u32 [%g0], %t; ld.global.u32 %x0, [%g0];");
  // A fence orders the accesses of one thread, but does not synchronize two threads.
  expectWithin("st.global.u32 [%g0], %t; membar.gl; ld.global.u32 %x0, [%g2];", "race on global memory: byte 128");
}

TEST(Global, ReadThenWriteWithinABlock) {
  expectWithin("ld.global.u32 %x0, [%g2]; st.global.u32 [%g0], %t;", "thread (32,0,0): race on global memory: byte 0 ");
  expectWithin(
      "setp.ge.u32 %q, %t, 32; @%q bra W; ld.global.u32 %x0, [%g2]; bra E; W: st.global.u32 [%g0], %t; E:",
      "byte 128 of an allocation of 1024 bytes is written here and was read by thread (0,0,0): nothing orders the two");
  expectNoneWithin("ld.global.u32 %x0, [%g2]; bar.sync 0; st.global.u32 [%g0], %t;");
}

TEST(Global, WriteThenWriteWithinABlock) {
  expectWithin("st.global.u32 [%p0], %t;", "thread (1,0,0): race on global memory: byte 0 of an allocation of 1024 "
                                           "bytes is written here and was written by thread (0,0,0)");
  expectWithin("shr.u32 %x0, %t, 5; setp.ne.u32 %q, %x0, 0; st.global.u16 [%g0], %t; @%q st.global.u32 [%g2], %t;",
               "thread (32,0,0): race on global memory: byte 0 ");
  expectNoneWithin("st.global.u32 [%g0], %t; bar.sync 0; st.global.u32 [%g2], %t;");
}

TEST(Global, WithinAWarp) {
  expectWithin("st.global.u32 [%g0], %t; ld.global.u32 %x0, [%g1];",
               "byte 4 of an allocation of 1024 bytes is read here and was written by thread (1,0,0)", 32);
  // A shuffle does not order memory accesses.
  expectWithin("st.global.u32 [%g0], %t; shfl.sync.bfly.b32 %x1, %t, 1, 31, -1; ld.global.u32 %x0, [%g1];",
               "was written by thread (1,0,0)", 32);
  expectWithin("ld.global.u32 %x0, [%g1]; st.global.u32 [%g0], %t;",
               "byte 0 of an allocation of 1024 bytes is written here and was read by thread (31,0,0)", 32);
  // Read by all the lanes, and written by one of them.
  expectWithin("ld.global.u32 %x0, [%p0]; setp.eq.u32 %q, %t, 0; @%q st.global.u32 [%p0], %t;",
               "was read by threads (0,0,0) to (31,0,0)", 32);
  expectNoneWithin(
      "st.global.u32 [%g0], %t; bar.warp.sync -1; ld.global.u32 %x0, [%g1]; bar.warp.sync -1; st.global.u32 [%g0], %t;",
      32);
}

// A barrier of two warps does not order the third, whichever warp read last.
TEST(Global, ReadBySeveralWarps) {
  for (int absent : {0, 1, 2}) {
    std::string writer = absent == 0 ? "32" : "0", reader = std::to_string(32 * absent);
    expectWithin("ld.global.u32 %x1, [%p0]; shr.u32 %x0, %t, 5; setp.eq.u32 %q, %x0, " + std::to_string(absent) +
                     "; @%q bra E; bar.sync 1, 64;\n"
                     "setp.eq.u32 %q, %t, " +
                     writer + "; @%q st.global.u32 [%p0], %t; E:",
                 "was read by threads (" + reader + ",0,0) to", 96);
  }
  expectNoneWithin("ld.global.u32 %x1, [%p0]; bar.sync 0; ld.global.u32 %x1, [%p0]; bar.sync 0; setp.eq.u32 %q, %t, "
                   "70; @%q st.global.u32 [%p0], %t;",
                   96);
}

TEST(Global, CopiesWithinABlock) {
  std::string copy =
      "mov.u32 %x0, s; mad.lo.u32 %x0, %t, 4, %x0; cp.async.ca.shared.global [%x0], [%g2], 4; cp.async.wait_all; ";
  expectWithin("st.global.u32 [%g0], %t; " + copy, "is written here and was read by thread (0,0,0)");
  expectWithin(copy + "st.global.u32 [%g0], %t;", "is read here and was written by thread (0,0,0)");
  expectNoneWithin("st.global.u32 [%g0], %t; bar.sync 0; " + copy + "bar.sync 0; st.global.u32 [%g0], %t;");
  // Destination bytes of a bulk copy out of shared memory are being written until the copy is waited for.
  std::string out =
      "mov.u32 %x0, s; mad.lo.u32 %x1, %t, 4, %x0; st.shared.u32 [%x1], %t; fence.proxy.async; bar.sync 0; setp.eq.u32 "
      "%q, %t, 0;\n"
      "@%q cp.async.bulk.global.shared::cta.bulk_group [%p0], [%x0], 256; @%q cp.async.bulk.commit_group;\n";
  std::string wait = "@%q cp.async.bulk.wait_group 0; ", read = "ld.global.u32 %x2, [%g0];";
  expectWithin(out + "bar.sync 0; " + wait + read, "is read here and was written by thread (0,0,0)");
  expectNoneWithin(out + wait + "bar.sync 0; " + read);
}

TEST(Global, AtomicsWithinABlock) {
  expectNoneWithin("red.global.add.u32 [%p0], 1; bar.sync 0; ld.global.u32 %x0, [%p0];");
  expectNoneWithin("red.global.add.u32 [%p0], 1; bar.sync 0; ld.global.u32 %x0, [%p0];", 64, 3);
  expectWithin("red.global.add.u32 [%p0], 1; ld.global.u32 %x0, [%p0];", "is read here and was written by thread");
}

} // namespace
