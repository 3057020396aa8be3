// Tests cooperative launches: blocks that wait for each other, in any order, and the check that they order what they
// access. Each rule has a program that breaks it, and its repaired twin.
#include "Fixture.h"

using namespace xfc::ptx;
using namespace xfc::ptx::test;

namespace {

constexpr uint32_t words = 256;

// %c: the block's number, %n: how many there are, %own: the word at byte 256 + 4 * (64 * block + thread), %next: that
// of the next block, %p0: a counter.
const std::string places = ".reg .b32 %c, %n, %x<8>; .reg .b64 %own, %next; .reg .pred %q, %lead;\n"
                           "mov.u32 %c, %ctaid.x; mov.u32 %n, %nctaid.x; setp.eq.u32 %lead, %t, 0;\n"
                           "mad.lo.u32 %x0, %c, 64, %t; mad.wide.u32 %own, %x0, 4, %p0;\n"
                           "add.u32 %x0, %c, 1; rem.u32 %x0, %x0, %n; mad.lo.u32 %x0, %x0, 64, %t; mad.wide.u32 %next, "
                           "%x0, 4, %p0;\n";
// The first thread waits until the counter, or another word, is `count`.
std::string waitFor(const std::string &count, const std::string &load = "ld.acquire.gpu",
                    const std::string &word = "%p0") {
  const std::string label = count == "%n" ? "all" : count;
  return "@!%lead bra W" + label + "; A" + label + ": " + load + ".global.u32 %x1, [" + word +
         "]; setp.ne.u32 %q, %x1, " + count + "; @%q bra A" + label + "; W" + label + ":\n";
}

// Runs a cooperative launch of blocks of 64 threads. Returns the reason of its fault, or nothing if there is none.
std::string together(const std::string &body, uint32_t blocks, bool checks = true, uint32_t order = 0) {
  Interpreter on({.checks = checks, .order = order});
  Array<uint32_t> memory(on, std::vector<uint32_t>(64 + 64 * words));
  return faultOf(kernel(1, places + body, ".shared .align 16 .b8 s[64];"), 64, {memory.address}, on, 0, blocks,
                 /*cooperative=*/true);
}
void expectRace(const std::string &body, const std::string &reason, uint32_t blocks = 2) {
  const std::string found = together(body, blocks);
  EXPECT_NE(found.find(reason), std::string::npos) << "found: " << found;
  EXPECT_EQ(together(body, blocks, /*checks=*/false), "");
}
void expectOrdered(const std::string &body) {
  for (uint32_t blocks : {1u, 2u, 3u, 7u})
    for (uint32_t order : {0u, 1u, 2u, 3u})
      EXPECT_EQ(together(body, blocks, true, order), "") << blocks << " blocks, order " << order;
}

const std::string store = "st.global.u32 [%own+256], %t;\n", fetch = "ld.global.u32 %x2, [%next+256];\n",
                  meet = "bar.sync 0;\n", count = "@%lead red.release.gpu.global.add.u32 [%p0], 1;\n",
                  waitForAll = waitFor("%n");

} // namespace

// Each block reads what the next one has written, which in ascending order runs later.
TEST(Cooperative, BlocksWaitForEachOther) {
  expectOrdered(store + meet + count + waitForAll + meet + fetch);
  Interpreter on;
  Array<uint32_t> memory(on, std::vector<uint32_t>(64 + 64 * words));
  const std::string text = kernel(1, places + store + meet + count + waitForAll + meet + fetch, "");
  EXPECT_NE(faultOf(text, 64, {memory.address}, on, 0, 2).find("deadlock"), std::string::npos)
      << "blocks of another launch run one after the other";
}

TEST(Cooperative, ARaiseMustRelease) {
  expectRace(store + meet + "@%lead red.relaxed.gpu.global.add.u32 [%p0], 1;\n" + waitForAll + meet + fetch,
             "race on global memory");
  expectRace(store + meet + "@%lead red.global.add.u32 [%p0], 1;\n" + waitForAll + meet + fetch,
             "race on global memory");
}

TEST(Cooperative, AWaitMustAcquire) {
  const std::string relaxed = waitFor("%n", "ld.relaxed.gpu"), weak = waitFor("%n", "ld.volatile");
  expectRace(store + meet + count + relaxed + meet + fetch, "race on global memory");
  expectRace(store + meet + count + weak + meet + fetch, "race on global memory");
}

// The thread that raises or waits does so for its block only beside a barrier.
TEST(Cooperative, BarriersPassTheOrderOn) {
  expectRace(store + count + waitForAll + meet + fetch, "race on global memory");
  expectRace(store + meet + count + waitForAll + fetch, "race on global memory");
}

TEST(Cooperative, AReadMustComeBeforeALaterWrite) {
  expectRace(fetch + store, "race on global memory");
  expectOrdered(fetch + meet + count + waitForAll + meet + store);
}

// Block 2 knows of block 0's write by way of block 1 alone.
TEST(Cooperative, OrderIsTransitive) {
  auto turn = [](const char *block, const std::string &body) {
    return "setp.ne.u32 %q, %c, " + std::string(block) + "; @%q bra E" + block + ";\n" + body + "E" + block + ":\n";
  };
  const std::string get = "ld.global.u32 %x2, [%p0+256];\n", put = "@%lead st.global.u32 [%p0+256], 5;\n";
  auto chain = [&](const char *load) {
    return turn("0", put + meet + count) +
           turn("1", waitFor("1", load) + meet + "@%lead st.release.gpu.global.u32 [%p0+4], 2;\n") +
           turn("2", waitFor("2", "ld.acquire.gpu", "%p0+4") + meet + get);
  };
  EXPECT_EQ(together(chain("ld.acquire.gpu"), 3), "");
  expectRace(chain("ld.relaxed.gpu"), "race on global memory", 3);
}

// A store ends what was released at its address before.
TEST(Cooperative, AStoreReplacesWhatWasReleased) {
  const std::string get = "bra E; W: " + waitFor("1") + meet + "ld.global.u32 %x2, [%p0+256]; E:\n";
  const std::string first = "setp.ne.u32 %q, %c, 0; @%q bra W; @%lead st.global.u32 [%p0+256], 1;\n";
  EXPECT_EQ(together(first + meet + "@%lead st.release.gpu.global.u32 [%p0], 1;\n" + get, 2), "");
  expectRace(first + meet + "@%lead st.release.gpu.global.u32 [%p0], 2; @%lead st.relaxed.gpu.global.u32 [%p0], 1;\n" +
                 get,
             "race on global memory");
}

TEST(Cooperative, StrongAccessesDoNotRace) {
  expectOrdered("st.relaxed.gpu.global.u32 [%p0+8], %c; ld.relaxed.gpu.global.u32 %x2, [%p0+8]; red.global.add.u32 "
                "[%p0+8], 1;");
  expectRace("@%lead st.relaxed.gpu.global.u32 [%p0+8], %c; @%lead ld.global.u32 %x2, [%p0+8];",
             "race on global memory: byte 8");
}

// What one block writes and another reads may not go through the cache that is not coherent, in whatever order.
TEST(Cooperative, NonCoherentLoads) {
  expectRace(store + meet + count + waitForAll + meet + "ld.global.nc.u32 %x2, [%next+256];",
             "ld.global.nc in one launch");
}

TEST(Cooperative, ADeadlockIsSaid) {
  EXPECT_NE(together(count + waitFor("9"), 2).find("deadlock: every thread that is left waits"), std::string::npos);
  EXPECT_NE(together(count + waitFor("9"), 3, false, 5).find("deadlock: every thread that is left waits"),
            std::string::npos);
}

// In ascending order, blocks take ascending numbers; a seed gives another order, and always the same.
TEST(Cooperative, RandomOrders) {
  const std::string text =
      kernel(1, places + "@!%lead bra E; atom.add.global.u32 %x1, [%p0], 1; mad.wide.u32 %own, %c, 4, %p0; "
                         "st.global.u32 [%own+4], %x1; E:");
  auto numbers = [&](uint32_t order) {
    Interpreter on({.order = order});
    Array<uint32_t> memory(on, std::vector<uint32_t>(9));
    run(on, text, {8, 1, 1}, {64, 1, 1}, {memory.address}, 0, {}, true);
    return memory.get();
  };
  EXPECT_EQ(numbers(0), (std::vector<uint32_t>{8, 0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_NE(numbers(1), numbers(0));
  EXPECT_EQ(numbers(1), numbers(1));
  EXPECT_NE(numbers(1), numbers(2));
}

// Each block has shared memory of its own, and is no cluster with the others.
TEST(Cooperative, BlocksFormNoCluster) {
  const std::string own = "@%lead st.shared.u32 [s], %c;" + meet +
                          "ld.shared.u32 %x2, [s]; setp.eq.u32 %q, %x2, %c; @%q bra "
                          "E; trap; E: mov.u32 %x3, %cluster_nctarank; setp.eq.u32 %q, %x3, 1; @%q bra F; trap; F:\n";
  expectOrdered(own);
  EXPECT_NE(together("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", 2)
                .find("barrier.cluster in a cooperative launch is not known"),
            std::string::npos);
  Interpreter on;
  Array<uint32_t> memory(on, std::vector<uint32_t>(64));
  EXPECT_THROW(run(on, kernel(1, ""), {2, 1, 1}, {64, 1, 1}, {memory.address}, 0, {2, 1, 1}, true), Error);
}
