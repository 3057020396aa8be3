// Tests sm_90a: mbarriers, bulk and tensor copies, wgmma with every layout, clusters.
#include "Fixture.h"
#include "Numbers.h"
#include "TensorMap.h"
#include <random>

using namespace xfc::ptx;
using namespace xfc::ptx::test;

namespace {

using U = std::vector<uint32_t>;

const std::string wait(const std::string &label, const std::string &barrier, const std::string &parity) {
  return label + ": { .reg .pred %done; mbarrier.try_wait.parity.shared::cta.b64 %done, " + barrier + ", " + parity +
         "; @!%done bra " + label + "; }\n";
}

// A ring of two stages between one producer warp and one consumer warp.
TEST(Mbarrier, Pipeline) {
  const std::string before =
      ".shared .align 8 .b64 full[2];\n.shared .align 8 .b64 empty[2];\n.shared .align 16 .b8 stage[256];";
  const std::string text = kernel(1, R"(
.reg .pred %q; .reg .b32 %f, %e, %s, %i, %n, %sum, %v, %lane, %parity, %fb, %eb; .reg .b64 %state;
mov.u32 %fb, full; mov.u32 %eb, empty;
setp.ne.u32 %q, %t, 0; @%q bra READY;
mbarrier.init.shared::cta.b64 [%fb], 32; mbarrier.init.shared::cta.b64 [%fb+8], 32;
mbarrier.init.shared::cta.b64 [%eb], 32; mbarrier.init.shared::cta.b64 [%eb+8], 32;
fence.mbarrier_init.release.cluster;
READY: bar.sync 0;
and.b32 %lane, %t, 31; mov.u32 %i, 0; mov.u32 %sum, 0;
setp.ge.u32 %q, %t, 32; @%q bra CONSUMER;
PRODUCER:
and.b32 %s, %i, 1; mad.lo.u32 %f, %s, 8, %fb; mad.lo.u32 %e, %s, 8, %eb;
shr.u32 %parity, %i, 1; and.b32 %parity, %parity, 1; xor.b32 %parity, %parity, 1;
)" + wait("W1", "[%e]", "%parity") + R"(
mov.u32 %v, stage; mad.lo.u32 %v, %s, 128, %v; mad.lo.u32 %v, %lane, 4, %v; mad.lo.u32 %n, %i, 100, %lane; st.shared.u32 [%v], %n;
mbarrier.arrive.shared::cta.b64 %state, [%f];
add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 7; @%q bra PRODUCER;
bra END;
CONSUMER:
and.b32 %s, %i, 1; mad.lo.u32 %f, %s, 8, %fb; mad.lo.u32 %e, %s, 8, %eb; shr.u32 %parity, %i, 1; and.b32 %parity, %parity, 1;
)" + wait("W2", "[%f]", "%parity") + R"(
xor.b32 %n, %lane, 31; mov.u32 %v, stage; mad.lo.u32 %v, %s, 128, %v; mad.lo.u32 %v, %n, 4, %v; ld.shared.u32 %n, [%v]; add.u32 %sum, %sum, %n;
mbarrier.arrive.shared::cta.b64 _, [%e];
add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 7; @%q bra CONSUMER;
END: add.u64 %p0, %p0, %t4; st.global.u32 [%p0], %sum;
)",
                                  before);
  for (bool checks : {false, true}) {
    Interpreter on({.checks = checks});
    Array<uint32_t> out(on, U(64));
    run(on, text, {}, {64, 1, 1}, {out.address});
    for (uint32_t l = 0; l < 32; ++l)
      EXPECT_EQ(out.get()[32 + l], 2100 + 7 * (31 - l));
  }
  // Without waiting for an empty stage.
  Interpreter on({.checks = true});
  Array<uint32_t> out(on, U(64));
  std::string careless = text;
  std::string drop = "@!%done bra W1;";
  careless.replace(careless.find(drop), drop.size(), "");
  EXPECT_TRUE(contains(faultOf(careless, 64, {out.address}, on), "race on shared byte"));
}

// The parity of a phase, the state of an arrival, and byte counts.
TEST(Mbarrier, PhasesAndBytes) {
  Interpreter on;
  Array<uint32_t> out(on, U(8));
  run(on,
      kernel(1, R"(
.reg .b64 %s; .reg .pred %a; .reg .b32 %r, %b;
mov.u32 %b, bar; mbarrier.init.shared.b64 [%b], 2;
mbarrier.arrive.shared.b64 %s, [%b];
mbarrier.test_wait.shared.b64 %a, [%b], %s; selp.u32 %r, 1, 0, %a; st.global.u32 [%p0], %r;
mbarrier.arrive.expect_tx.shared.b64 _, [%b], 16;
mbarrier.test_wait.parity.shared.b64 %a, [%b], 0; selp.u32 %r, 1, 0, %a; st.global.u32 [%p0+4], %r;
mbarrier.complete_tx.relaxed.cta.shared.b64 [%b], 16;
mbarrier.test_wait.parity.shared.b64 %a, [%b], 0; selp.u32 %r, 1, 0, %a; st.global.u32 [%p0+8], %r;
mbarrier.test_wait.parity.shared.b64 %a, [%b], 1; selp.u32 %r, 1, 0, %a; st.global.u32 [%p0+12], %r;
mbarrier.test_wait.shared.b64 %a, [%b], %s; selp.u32 %r, 1, 0, %a; st.global.u32 [%p0+16], %r;
mbarrier.arrive.shared.b64 _, [%b], 2;
mbarrier.test_wait.parity.shared.b64 %a, [%b], 1; selp.u32 %r, 1, 0, %a; st.global.u32 [%p0+20], %r;
)",
             ".shared .align 8 .b64 bar;"),
      {}, {}, {out.address});
  EXPECT_EQ(out.get(), (U{0, 0, 1, 0, 1, 1, 0, 0}));
  EXPECT_TRUE(contains(faultOf(kernel(0, "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.shared.b64 _, [bar], 2;",
                                      ".shared .align 8 .b64 bar;"),
                               1, {}, on),
                       "more arrivals at an mbarrier than its count of 1"));
  EXPECT_TRUE(contains(faultOf(kernel(0,
                                      "L: { .reg .pred %q; mbarrier.init.shared.b64 [bar], 1; W: "
                                      "mbarrier.try_wait.parity.shared.b64 %q, [bar], 0; @!%q bra W; }",
                                      ".shared .align 8 .b64 bar;"),
                               1, {}, on),
                       "deadlock"));
  EXPECT_TRUE(
      contains(faultOf(kernel(0, "mbarrier.arrive.shared.b64 _, [bar];", ".shared .align 8 .b64 bar;"), 1, {}, on),
               "no mbarrier is at"));
}

const std::string begin =
    ".reg .b32 %bar, %tile; .reg .pred %first; mov.u32 %bar, bar; mov.u32 %tile, tile; setp.eq.u32 %first, %t, 0;\n"
    "@%first mbarrier.init.shared::cta.b64 [%bar], 1; fence.mbarrier_init.release.cluster; bar.sync 0;\n";
const std::string space = ".shared .align 1024 .b8 tile[32768];\n.shared .align 8 .b64 bar;";

TEST(Bulk, LoadAndStore) {
  std::string body =
      begin +
      "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;\n"
      "@%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%p0], 256, [%bar];\n" +
      wait("W", "[%bar]", "0") +
      ".reg .b32 %a, %x; mad.lo.u32 %a, %t, 4, %tile; ld.shared.u32 %x, [%a]; add.u32 %x, %x, 1000; st.shared.u32 "
      "[%a], %x;\n"
      "fence.proxy.async.shared::cta; bar.sync 0;\n"
      "@%first cp.async.bulk.global.shared::cta.bulk_group [%p1], [%tile], 256; @%first cp.async.bulk.commit_group;\n"
      "@%first cp.async.bulk.wait_group.read 0;";
  for (bool checks : {false, true}) {
    Interpreter on({.checks = checks});
    U values(64);
    for (uint32_t k = 0; k < 64; ++k)
      values[k] = k * k;
    Array<uint32_t> in(on, values), out(on, U(64));
    run(on, kernel(2, body, space), {}, {64, 1, 1}, {in.address, out.address});
    for (uint32_t &v : values)
      v += 1000;
    EXPECT_EQ(out.get(), values);
  }
  // Read before the bytes have arrived; overwritten before they have been read out.
  Interpreter on({.checks = true});
  Array<uint32_t> in(on, U(64)), out(on, U(64));
  std::string early = body, w = wait("W", "[%bar]", "0");
  early.replace(early.find(w), w.size(), "");
  EXPECT_TRUE(contains(faultOf(kernel(2, early, space), 64, {in.address, out.address}, on),
                       "a read of shared byte 1152, which nothing has written"));
  early.replace(early.find(".reg .b32 %a, %x;"), 0, "bar.sync 0;\n");
  EXPECT_TRUE(contains(faultOf(kernel(2, early, space), 64, {in.address, out.address}, on),
                       "is accessed while a cp.async of thread (0,0,0) at PTX line"));
  EXPECT_TRUE(contains(
      faultOf(
          kernel(2,
                 begin +
                     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%p0+4], 16, [%bar];",
                 space),
          1, {in.address, out.address}, on),
      "misaligned source"));
}

TensorMap mapOf(int type, std::vector<uint64_t> sizes, std::vector<uint64_t> strides, std::vector<uint32_t> box,
                int swizzle, uint64_t address, int fill = 0) {
  TensorMap map;
  std::vector<uint32_t> ones(sizes.size(), 1);
  auto wrong = encodeTiled(map, type, uint32_t(sizes.size()), address, sizes.data(), strides.data(), box.data(),
                           ones.data(), 0, swizzle, fill);
  EXPECT_FALSE(wrong) << *wrong;
  return map;
}
constexpr int brain = 9, float32 = 7;

// A 3-dimensional box that exceeds the tensor's bounds on both sides, loaded and stored.
TEST(Tensors, ThreeDimensionsAndBounds) {
  constexpr uint32_t X = 8, Y = 5, Z = 3;
  std::vector<float> values(X * Y * Z);
  for (size_t k = 0; k < values.size(); ++k)
    values[k] = float(k + 1);
  Interpreter on({.checks = true});
  Array<float> in(on, values), image(on, std::vector<float>(4 * 4 * 2)), back(on, std::vector<float>(X * Y * Z));
  // Box 4 x 4 x 2 at (6, -1, 2): x 8, 9 lie outside, y -1, z 3.
  Array<TensorMap> from(on, {mapOf(float32, {X, Y, Z}, {4 * X, 4 * X * Y}, {4, 4, 2}, 0, in.address)}),
      to(on, {mapOf(float32, {X, Y, Z}, {4 * X, 4 * X * Y}, {4, 4, 2}, 0, back.address)});
  run(on,
      kernel(4,
             begin +
                 "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 128;\n"
                 "@%first cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%p0, "
                 "{6, -1, 2}], [%bar];\n" +
                 wait("W", "[%bar]", "0") +
                 ".reg .b32 %a, %x; mad.lo.u32 %a, %t, 4, %tile; ld.shared.u32 %x, [%a]; add.u64 %p2, %p2, %t4; "
                 "st.global.u32 [%p2], %x; bar.sync 0;\n"
                 "@%first cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%p1, {6, -1, 2}], [%tile];\n"
                 "@%first cp.async.bulk.commit_group; @%first cp.async.bulk.wait_group 0;",
             space),
      {}, {32, 1, 1}, {from.address, to.address, image.address, 0});
  auto got = image.get(), wrote = back.get();
  for (int z = 0; z < 2; ++z)
    for (int y = 0; y < 4; ++y)
      for (int x = 0; x < 4; ++x) {
        bool in = 6 + x < int(X) && y - 1 >= 0 && 2 + z < int(Z);
        size_t at = size_t((2 + z) * int(X * Y) + (y - 1) * int(X) + 6 + x);
        EXPECT_EQ(got[size_t(z * 16 + y * 4 + x)], in ? values[at] : 0) << x << " " << y << " " << z;
        if (in) {
          EXPECT_EQ(wrote[at], values[at]);
        }
      }
  EXPECT_EQ(std::count(wrote.begin(), wrote.end(), 0.0f), ptrdiff_t(X * Y * Z - 2 * 3));
}

// Where a swizzle puts an element, as in the ISA's figure: 16-byte columns permuted depending on the 128-byte row.
TEST(Tensors, Swizzles) {
  for (int mode : {1, 2, 3}) {
    int span = 16 << mode, columns = span / 4, rows = 32;
    Interpreter on;
    std::vector<float> values(size_t(columns * rows));
    for (size_t k = 0; k < values.size(); ++k)
      values[k] = float(k);
    Array<float> in(on, values), out(on, std::vector<float>(values.size()));
    Array<TensorMap> map(on, {mapOf(float32, {uint64_t(columns), uint64_t(rows)}, {uint64_t(span)},
                                    {uint32_t(columns), uint32_t(rows)}, mode, in.address)});
    run(on,
        kernel(2,
               begin + "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], " +
                   std::to_string(4 * values.size()) +
                   ";\n"
                   "@%first cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%tile], "
                   "[%p0, {0, 0}], [%bar];\n" +
                   wait("W", "[%bar]", "0") +
                   ".reg .b32 %a, %x, %i; .reg .b64 %g; .reg .pred %q; mov.u32 %i, %t; L: mad.lo.u32 %a, %i, 4, %tile; "
                   "ld.shared.u32 %x, [%a];\n"
                   "mad.wide.u32 %g, %i, 4, %p1; st.global.u32 [%g], %x; add.u32 %i, %i, 32; setp.lt.u32 %q, %i, " +
                   std::to_string(values.size()) + "; @%q bra L;",
               space),
        {}, {32, 1, 1}, {map.address, out.address});
    auto got = out.get();
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns; ++c) {
        int chunk = c / 4, perLine = 128 / span;           // rows of the box in 128 bytes
        int partner = chunk ^ (r / perLine % (span / 16)); // 128: r % 8, 64: r / 2 % 4, 32: r / 4 % 2
        ASSERT_EQ(got[size_t(r * columns + partner * 4 + c % 4)], values[size_t(r * columns + c)])
            << mode << " " << r << " " << c;
      }
  }
}

TEST(Tensors, MapsAreChecked) {
  TensorMap map;
  uint64_t sizes[] = {64, 64}, strides[] = {128}, odd[] = {100};
  uint32_t box[] = {64, 64}, wide[] = {72, 64}, ones[] = {1, 1};
  EXPECT_FALSE(encodeTiled(map, brain, 2, 256, sizes, strides, box, ones, 0, 3, 0));
  EXPECT_EQ(encodeTiled(map, brain, 2, 256, sizes, odd, box, ones, 0, 3, 0),
            "a stride that is no multiple of 16 below 2^40");
  EXPECT_EQ(encodeTiled(map, brain, 2, 8, sizes, strides, box, ones, 0, 3, 0), "an address that is no multiple of 16");
  EXPECT_EQ(encodeTiled(map, brain, 2, 256, sizes, strides, wide, ones, 0, 3, 0),
            "a box whose rows are longer than the swizzle's 128 bytes");
}

// ---- wgmma: D[64][N] = A[64][K] * B[K][N], with operands loaded by tensor copies, in every swizzle, K- and MN-major

struct Product {
  int n, k;
  std::vector<float> a, b; // [64][k], [k][n]
  Product(int n, int k) : n(n), k(k), a(size_t(64 * k)), b(size_t(k * n)) {
    std::mt19937 random(3);
    for (auto *m : {&a, &b})
      for (float &x : *m)
        x = float(int(random() % 17) - 8);
  }
  float at(int row, int column) const {
    float sum = 0;
    for (int e = 0; e < k; ++e)
      sum += a[size_t(row * k + e)] * b[size_t(e * n + column)];
    return sum;
  }
  void expect(const std::vector<float> &d, float factor = 1) const {
    // d: by warp, lane and register, as in the ISA's figure of D.
    for (int t = 0; t < 128; ++t)
      for (int i = 0; i < n / 2; ++i) {
        int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + t % 4 * 2 + i % 2;
        ASSERT_EQ(d[size_t(t * (n / 2) + i)], factor * at(row, column)) << row << " " << column;
      }
  }
};
std::vector<uint16_t> brains(const std::vector<float> &values, int rows, int columns, bool transpose) {
  std::vector<uint16_t> out(values.size());
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c)
      out[size_t(transpose ? c * rows + r : r * columns + c)] = toBFloat(values[size_t(r * columns + c)]);
  return out;
}
std::string registers(const char *name, int n) {
  std::string text = "{";
  for (int r = 0; r < n; ++r)
    text += (r ? ", " : "") + std::string(name) + std::to_string(r);
  return text + "}";
}
std::string storeProduct(int n, const std::string &to) {
  std::string text = "mad.wide.u32 %g, %t, " + std::to_string(2 * n) + ", " + to + ";\n";
  for (int r = 0; r < n / 2; ++r)
    text += "st.global.f32 [%g+" + std::to_string(4 * r) + "], %d" + std::to_string(r) + ";\n";
  return text;
}
// The descriptor of the matrix that lies `offset` bytes after the tile.
std::string descriptor(const std::string &reg, int offset, int leading, int stride, int mode) {
  uint64_t bits = uint64_t(leading / 16) << 16 | uint64_t(stride / 16) << 32 | uint64_t(mode) << 62;
  return "{ .reg .b32 %o; add.u32 %o, %tile, " + std::to_string(offset) + "; shr.u32 %o, %o, 4; cvt.u64.u32 " + reg +
         ", %o; or.b64 " + reg + ", " + reg + ", " + std::to_string(bits) + "; }\n";
}

TEST(Wgmma, EverySwizzleAndMajor) {
  for (int n : {8, 64, 136})
    for (int mode : {1, 2, 3})
      for (bool transA : {false, true})
        for (bool transB : {false, true}) {
          SCOPED_TRACE("n " + std::to_string(n) + " swizzle " + std::to_string(16 << mode) +
                       (transA ? " A transposed" : "") + (transB ? " B transposed" : ""));
          int span = 16 << mode, K = span / 2; // K-major rows are one span
          if (transB && n % K)
            continue;
          Product p(n, K);
          Interpreter on({.checks = true});
          // K-major: [rows][K], one box. MN-major: [K][rows], a box for each span of rows.
          Array<uint16_t> a(on, brains(p.a, 64, K, transA)), b(on, brains(p.b, K, n, !transB));
          auto map = [&](const Array<uint16_t> &m, int rows, bool trans) {
            return trans ? mapOf(brain, {uint64_t(rows), uint64_t(K)}, {2 * uint64_t(rows)}, {uint32_t(K), uint32_t(K)},
                                 mode, m.address)
                         : mapOf(brain, {uint64_t(K), uint64_t(rows)}, {2 * uint64_t(K)}, {uint32_t(K), uint32_t(rows)},
                                 mode, m.address);
          };
          Array<TensorMap> ma(on, {map(a, 64, transA)}), mb(on, {map(b, n, transB)});
          Array<float> out(on, std::vector<float>(size_t(64 * n)));
          int boxBytes = span * K, bytesA = 64 * K * 2, bytesB = n * K * 2;
          std::string body = begin +
                             ".reg .b64 %g, %x, %y; .reg .b32 %d<68>; .reg .pred %acc; setp.ne.u32 %acc, %t, %t;\n"
                             "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], " +
                             std::to_string(bytesA + bytesB) + ";\n";
          auto load = [&](const std::string &map, int rows, bool trans, int offset) {
            for (int box = 0; box < (trans ? rows / K : 1); ++box)
              body += "@%first cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%tile+" +
                      std::to_string(offset + box * boxBytes) + "], [" + map + ", {" +
                      std::to_string(trans ? box * K : 0) + ", 0}], [%bar];\n";
          };
          constexpr int atB = 8192;
          load("%p0", 64, transA, 0);
          load("%p1", n, transB, atB);
          body += wait("W", "[%bar]", "0") + "wgmma.fence.sync.aligned;\n";
          int descriptorMode = mode == 3 ? 1 : mode == 2 ? 2 : 3;
          for (int step = 0; step < K / 16; ++step) {
            body +=
                descriptor("%x", step * (transA ? 16 * span : 32), transA ? boxBytes : 16, 8 * span, descriptorMode);
            body += descriptor("%y", atB + step * (transB ? 16 * span : 32), transB ? boxBytes : 16, 8 * span,
                               descriptorMode);
            body += "wgmma.mma_async.sync.aligned.m64n" + std::to_string(n) + "k16.f32.bf16.bf16 " +
                    registers("%d", n / 2) + ", %x, %y, %acc, 1, 1, " + (transA ? "1" : "0") + ", " +
                    (transB ? "1" : "0") + "; setp.eq.u32 %acc, %t, %t;\n";
          }
          body += "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n" + storeProduct(n, "%p2");
          run(on, kernel(3, body, space), {}, {128, 1, 1}, {ma.address, mb.address, out.address});
          p.expect(out.get());
        }
}

// Without a swizzle: matrices of 8 rows of 16 bytes, at positions that the host chooses; and A in registers, negated.
TEST(Wgmma, NoSwizzleAndRegisters) {
  for (bool fromRegisters : {false, true})
    for (bool trans : {false, true}) {
      Product p(16, 16);
      Interpreter on({.checks = true});
      // The distance in bytes between matrices of 8 rows (K-major) or 8 k (MN-major), along each dimension.
      constexpr int alongMn = 512, alongK = 128;
      std::vector<uint16_t> image(4096);
      auto place = [&](int mn, int k, int base, bool t, float x) {
        int within = t ? k % 8 * 16 + mn % 8 * 2 : mn % 8 * 16 + k % 8 * 2;
        image[size_t(base + mn / 8 * alongMn + k / 8 * alongK + within) / 2] = toBFloat(x);
      };
      for (int k = 0; k < 16; ++k) {
        for (int m = 0; m < 64; ++m)
          place(m, k, 0, trans && !fromRegisters, p.a[size_t(m * 16 + k)]);
        for (int c = 0; c < 16; ++c)
          place(c, k, 4096, trans, p.b[size_t(k * 16 + c)]);
      }
      std::vector<uint32_t> fragments(128 * 4); // of A, in the layout of mma.sync
      for (int t = 0; t < 128; ++t)
        for (int i = 0; i < 8; ++i) {
          int row = t / 32 * 16 + t % 32 / 4 + (i / 2 % 2) * 8, k = t % 4 * 2 + i % 2 + i / 4 * 8;
          fragments[size_t(t * 4 + i / 2)] |= uint32_t(toBFloat(p.a[size_t(row * 16 + k)])) << (16 * (i % 2));
        }
      Array<uint16_t> in(on, image);
      Array<uint32_t> fa(on, fragments);
      Array<float> out(on, std::vector<float>(64 * 16));
      std::string body =
          begin +
          ".reg .b64 %g, %x, %y; .reg .b32 %d<8>, %a<4>; .reg .pred %acc; setp.ne.u32 %acc, %t, %t;\n"
          "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 8192;\n"
          "@%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%p0], 8192, [%bar];\n"
          "mad.wide.u32 %g, %t, 16, %p1; ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%g];\n" +
          wait("W", "[%bar]", "0") + descriptor("%x", 0, alongK, alongMn, 0) +
          descriptor("%y", 4096, alongK, alongMn, 0) + "wgmma.fence.sync.aligned;\n" +
          "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 " + registers("%d", 8) + ", " +
          (fromRegisters ? "{%a0, %a1, %a2, %a3}" : "%x") + ", %y, %acc, -1, 1, " +
          (fromRegisters ? ""
           : trans       ? "1, "
                         : "0, ") +
          (trans ? "1" : "0") + ";\nwgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n" +
          storeProduct(16, "%p2");
      run(on, kernel(3, body, space), {}, {128, 1, 1}, {in.address, fa.address, out.address});
      p.expect(out.get(), -1);
    }
}

// A product's operands must not be overwritten before it is waited for, and its result is not available before.
TEST(Wgmma, IsAsynchronous) {
  std::string body = begin +
                     ".reg .b64 %g, %x; .reg .b32 %d<4>, %z, %i; .reg .pred %acc, %q; setp.ne.u32 %acc, %t, %t;\n"
                     "mov.u32 %z, 0; mad.lo.u32 %i, %t, 16, %tile; st.shared.v4.b32 [%i], {%z, %z, %z, %z}; mov.b32 "
                     "%d0, %z; mov.b32 %d1, %z;\n"
                     "mov.b32 %d2, %z; mov.b32 %d3, %z; fence.proxy.async; bar.sync 0;\n" +
                     descriptor("%x", 0, 128, 256, 0) +
                     "wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d0, %d1, %d2, "
                     "%d3}, %x, %x, %acc, 1, 1, 0, 0;\n"
                     "wgmma.commit_group.sync.aligned;\n";
  Interpreter on({.checks = true});
  EXPECT_EQ(faultOf(kernel(0, body + "wgmma.wait_group.sync.aligned 0; bar.sync 0; st.shared.u32 [%i], 1;", space), 128,
                    {}, on),
            "");
  EXPECT_TRUE(
      contains(faultOf(kernel(0, body + "bar.sync 0; st.shared.u32 [%i], 1; wgmma.wait_group.sync.aligned 0;", space),
                       128, {}, on),
               "race on shared byte"));
}

// A wgmma.fence is required between an access to a product's registers and the product.
TEST(Wgmma, RegistersAreFenced) {
  const std::string before =
      begin +
      ".reg .b64 %x; .reg .f32 %d<8>, %e<8>, %s; .reg .b32 %a<4>, %i, %z; .reg .pred %acc;\n"
      "setp.eq.u32 %acc, %t, %t; mov.u32 %z, 0; mad.lo.u32 %i, %t, 16, %tile;\n"
      "st.shared.v4.b32 [%i], {%z, %z, %z, %z};\n" +
      [] {
        std::string text;
        for (int r = 0; r < 8; ++r)
          text += "mov.f32 %d" + std::to_string(r) + ", 0f3f800000; mov.f32 %e" + std::to_string(r) + ", 0f3f800000;\n";
        return text + "mov.u32 %a0, 0; mov.u32 %a1, 0; mov.u32 %a2, 0; mov.u32 %a3, 0;\n";
      }() +
      "fence.proxy.async; bar.sync 0;\n" + descriptor("%x", 0, 128, 256, 0);
  auto product = [](int n, const std::string &d = "%d") {
    return "wgmma.mma_async.sync.aligned.m64n" + std::to_string(n) + "k16.f32.bf16.bf16 " +
           registers(d.c_str(), n / 2) + ", {%a0, %a1, %a2, %a3}, %x, %acc, 1, 1, 0;\n";
  };
  const std::string fence = "wgmma.fence.sync.aligned;\n",
                    done = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n";
  auto faultIn = [&](const std::string &body) {
    Interpreter on({.checks = true});
    return faultOf(kernel(0, before + body, space), 128, {}, on);
  };
  // Consecutive products may accumulate in the same shape; after a wait, registers may be read, and then need a fence.
  EXPECT_EQ(faultIn(fence + product(8) + product(8) + done + product(8) + done + "add.f32 %s, %d0, %d1;\n" + fence +
                    product(8) + done),
            "");
  EXPECT_EQ(faultIn(fence + product(8) + product(16, "%e") + done + fence + product(16, "%d") + done), "");
  auto expectFault = [&](const std::string &body, const std::string &reason) {
    const std::string fault = faultIn(body);
    EXPECT_TRUE(contains(fault, reason)) << "found: " << fault;
    EXPECT_TRUE(contains(fault, "test")) << "names no kernel: " << fault;
    EXPECT_TRUE(contains(fault, "PTX line")) << "names no line: " << fault;
  };
  expectFault(product(8) + done, "accumulator 0 was accessed at PTX line");
  // Read or written since the fence; also for registers of A.
  expectFault(fence + product(8) + done + "add.f32 %s, %d2, %d2;\n" + product(8) + done,
              "accumulator 2 was accessed at PTX line");
  expectFault(fence + "mov.f32 %d3, %s;\n" + product(8) + done, "accumulator 3 was accessed at PTX line");
  expectFault(fence + "mov.u32 %a1, 0;\n" + product(8) + done, "register 1 of A was accessed at PTX line");
  expectFault(fence + product(8) + done + product(16, "%d") + done,
              "accumulator 0 has sums of a product of another shape");
  // Not waited for.
  expectFault(fence + product(8) + "wgmma.commit_group.sync.aligned;\nadd.f32 %s, %d2, %d2;\n",
              "a register of a wgmma.mma_async that is not waited for is accessed");
  expectFault(fence + product(8) + done + fence + product(8) +
                  "wgmma.commit_group.sync.aligned;\nmov.u32 %a0, %z; wgmma.wait_group.sync.aligned 0;\n",
              "a register of a wgmma.mma_async that is not waited for is accessed");
  // The rule includes registers that have never been written, before a first product.
  Interpreter on;
  EXPECT_TRUE(contains(
      faultOf(kernel(0,
                     begin + ".reg .b64 %x; .reg .f32 %d<4>; .reg .pred %acc;\n" + descriptor("%x", 0, 128, 256, 0) +
                         "setp.ne.u32 %acc, %t, %t; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
                         "{%d0, %d1, %d2, %d3}, %x, %x, %acc, 1, 1, 0, 0;\n",
                     space),
              128, {}, on),
      "accumulator 0 is that of a first product, and no wgmma.fence came since"));
}

// The four warps of a warpgroup must issue the same products.
TEST(Wgmma, FourWarpsTogether) {
  const std::string before = begin +
                             ".reg .b64 %x, %y; .reg .f32 %d<4>; .reg .b32 %i, %z, %w; .reg .pred %acc, %q;\n"
                             "setp.ne.u32 %acc, %t, %t; mov.u32 %z, 0; mad.lo.u32 %i, %t, 16, %tile;\n"
                             "st.shared.v4.b32 [%i], {%z, %z, %z, %z}; shr.u32 %w, %t, 5;\n"
                             "fence.proxy.async; bar.sync 0;\n" +
                             descriptor("%x", 0, 128, 256, 0) + "mov.b64 %y, %x;\n",
                    product = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d0, %d1, %d2, %d3}, %x, %y, %acc, "
                              "1, 1, 0, 0;\n",
                    fence = "wgmma.fence.sync.aligned;\n",
                    done = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n";
  auto faultIn = [&](const std::string &body, uint32_t threads = 128) {
    Interpreter on({.checks = true});
    return faultOf(kernel(0, before + body, space), threads, {}, on);
  };
  auto expectFault = [&](const std::string &fault, const std::string &reason) {
    EXPECT_TRUE(contains(fault, reason)) << "found: " << fault;
  };
  EXPECT_EQ(faultIn(fence + product + done), "");
  EXPECT_EQ(faultIn(fence + product + product + done, 256), ""); // two warpgroups
  // Two warpgroups, one of which computes products.
  EXPECT_EQ(faultIn("setp.ge.u32 %q, %w, 4; @%q bra E;\n" + fence + product + done + "E:\n", 256), "");
  expectFault(faultIn(fence + product + done, 96),
              "wgmma is for the four warps of a warpgroup, of which the block has 3");
  expectFault(faultIn("setp.eq.u32 %q, %w, 2; @%q bra E;\n" + fence + product + done + "E:\n"),
              "the warps of a warpgroup part: one ends after");
  expectFault(faultIn(fence + product + "setp.eq.u32 %q, %w, 3; @%q bra E;\n" + product + "E:\n" + done),
              "the warps of a warpgroup part: another one issues the instruction at PTX line");
  expectFault(faultIn(fence + "setp.eq.u32 %q, %w, 3; @%q add.s64 %y, %y, 1;\n" + product + done),
              "the warps of a warpgroup give different descriptors or scale-d");
  expectFault(faultIn(fence + "setp.eq.u32 %acc, %w, 1;\n" + product + done),
              "the warps of a warpgroup give different descriptors or scale-d");
}

// ---- proxies

// Bytes written by the generic proxy need a fence before the async proxy reads or writes them.
TEST(Proxies, GenericThenAsync) {
  const std::string write = begin + ".reg .b32 %a; .reg .pred %q, %one; mad.lo.u32 %a, %t, 4, %tile;\n"
                                    "setp.eq.u32 %one, %t, 1; st.shared.u32 [%a], %t;\n",
                    store = "@%first cp.async.bulk.global.shared::cta.bulk_group [%p0], [%tile], 256;\n"
                            "@%first cp.async.bulk.commit_group; @%first cp.async.bulk.wait_group.read 0;\n",
                    fence = "fence.proxy.async.shared::cta;\n", sync = "bar.sync 0;\n";
  auto faultIn = [&](const std::string &body) {
    Interpreter on({.checks = true});
    Array<uint32_t> memory(on, U(64));
    return faultOf(kernel(1, write + body, space), 64, {memory.address}, on);
  };
  auto expectFault = [&](const std::string &body, const std::string &reason) {
    const std::string fault = faultIn(body);
    EXPECT_TRUE(contains(fault, reason)) << "found: " << fault;
  };
  const std::string unread = "read through the async proxy, and no fence.proxy.async comes between";
  EXPECT_EQ(faultIn(fence + sync + store), "");
  EXPECT_EQ(faultIn("fence.proxy.async;\n" + sync + store), "");
  EXPECT_EQ(faultIn("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;\n" + sync + store), "");
  // Fence by the thread that copies, after all threads have written.
  EXPECT_EQ(faultIn(sync + "@%first " + fence + store), "");
  // Fence by a thread that is ordered after all writes and before the copy.
  EXPECT_EQ(faultIn(sync + "setp.eq.u32 %q, %t, 32; @%q " + fence + sync + store), "");
  expectFault(sync + store, "shared byte 1024, which thread (0,0,0) has written at PTX line 18, is " + unread);
  expectFault("fence.proxy.async.global;\n" + sync + store, unread);
  expectFault("fence.acq_rel.cta;\n" + sync + store, unread);
  // Fence by only one of the writing threads, of this warp or the other, or too early.
  expectFault("@%first " + fence + sync + store, "shared byte 1028, which thread (1,0,0) has written");
  expectFault("setp.lt.u32 %q, %t, 32; @%q " + fence + sync + store, "shared byte 1152, which thread (32,0,0) has");
  expectFault(fence + "st.shared.u32 [%a], 7;\n" + sync + store, "shared byte 1024, which thread (0,0,0) has written");
  // Fence by a thread that is not ordered after the others' writes, in the same warp or in another one.
  expectFault("bar.warp.sync -1; @%first " + fence + sync + store, "shared byte 1152, which thread (32,0,0) has");
  // A bulk copy that overwrites written bytes.
  const std::string load = "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;\n@%first "
                           "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%p0], 256, "
                           "[%bar];\n" +
                           wait("W", "[%bar]", "0");
  EXPECT_EQ(faultIn(fence + sync + load), "");
  expectFault(sync + load, "is written through the async proxy, and no fence.proxy.async comes between");
  // Bytes that a copy brought may be read by either proxy.
  EXPECT_EQ(faultIn(fence + sync + load + "ld.shared.u32 %a, [%a];\n" + sync + store), "");
}

TEST(Proxies, GenericThenWgmma) {
  const std::string write = begin + ".reg .b64 %x; .reg .f32 %d<4>; .reg .b32 %i, %z; .reg .pred %acc;\n"
                                    "setp.ne.u32 %acc, %t, %t; mov.u32 %z, 0; mad.lo.u32 %i, %t, 16, %tile;\n"
                                    "st.shared.v4.b32 [%i], {%z, %z, %z, %z};\n",
                    product =
                        "bar.sync 0;\n" + descriptor("%x", 0, 128, 256, 0) +
                        "wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d0, %d1, "
                        "%d2, %d3}, %x, %x, %acc, 1, 1, 0, 0;\n"
                        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n";
  Interpreter on({.checks = true}), blind;
  EXPECT_EQ(faultOf(kernel(0, write + "fence.proxy.async;\n" + product, space), 128, {}, on), "");
  const std::string fault = faultOf(kernel(0, write + product, space), 128, {}, on);
  EXPECT_TRUE(contains(fault, "is read through the async proxy, and no fence.proxy.async comes between")) << fault;
  EXPECT_EQ(faultOf(kernel(0, write + product, space), 128, {}, blind), "");
  // Operands of a product that was waited for can be overwritten without a fence.
  EXPECT_EQ(faultOf(kernel(0, write + "fence.proxy.async;\n" + product + "bar.sync 0; st.shared.u32 [%i], 1;\n", space),
                    128, {}, on),
            "");
}

// An mbarrier's initialization needs a fence before a copy may arrive there.
TEST(Proxies, InitThenArrival) {
  auto faultIn = [&](const std::string &fence) {
    Interpreter on({.checks = true});
    Array<uint32_t> memory(on, U(64));
    return faultOf(
        kernel(1,
               ".reg .b32 %bar, %tile; .reg .pred %first; mov.u32 %bar, bar; mov.u32 %tile, tile; setp.eq.u32 %first, "
               "%t, 0;\n@%first mbarrier.init.shared::cta.b64 [%bar], 1;\n" +
                   fence +
                   "bar.sync 0;\n@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;\n@%first "
                   "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%p0], 256, [%bar];\n" +
                   wait("W", "[%bar]", "0"),
               space),
        64, {memory.address}, on);
  };
  EXPECT_EQ(faultIn("@%first fence.mbarrier_init.release.cluster;\n"), "");
  EXPECT_EQ(faultIn("fence.proxy.async.shared::cta;\n"), "");
  for (const char *none : {"", "fence.acq_rel.cluster;\n"})
    EXPECT_TRUE(contains(faultIn(none), "no fence.mbarrier_init or fence.proxy.async comes between")) << faultIn(none);
}

// ---- clusters

// Every block writes into its right neighbor's shared memory and signals that on an mbarrier there.
TEST(Clusters, DistributedSharedMemory) {
  for (bool checks : {false, true}) {
    Interpreter on({.checks = checks});
    Array<uint32_t> out(on, U(16 * 32));
    run(on,
        kernel(1,
               R"(
.reg .b32 %rank, %size, %next, %bar, %word, %there, %v, %c; .reg .pred %q; .reg .b64 %g;
mov.u32 %rank, %cluster_ctarank; mov.u32 %size, %cluster_nctarank; mov.u32 %bar, bar; mov.u32 %word, words;
setp.eq.u32 %q, %t, 0; @%q mbarrier.init.shared::cta.b64 [%bar], 32;
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
add.u32 %next, %rank, 1; rem.u32 %next, %next, %size;
mad.lo.u32 %word, %t, 4, %word; mapa.shared::cluster.u32 %there, %word, %next;
mad.lo.u32 %v, %rank, 1000, %t; st.shared::cluster.u32 [%there], %v;
mapa.shared::cluster.u32 %there, %bar, %next; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%there];
)" + wait("W", "[%bar]", "0") +
                   R"(
xor.b32 %v, %t, 1; mov.u32 %c, words; mad.lo.u32 %v, %v, 4, %c; ld.shared.u32 %v, [%v];
mov.u32 %c, %ctaid.x; mad.lo.u32 %c, %c, 32, %t; mad.wide.u32 %g, %c, 4, %p0; st.global.u32 [%g], %v;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
)",
               ".shared .align 8 .b64 bar;\n.shared .align 4 .b8 words[128];"),
        {16, 1, 1}, {32, 1, 1}, {out.address}, 0, {4, 1, 1});
    auto got = out.get();
    for (uint32_t b = 0; b < 16; ++b)
      for (uint32_t t = 0; t < 32; ++t)
        EXPECT_EQ(got[b * 32 + t], (b % 4 + 3) % 4 * 1000 + (t ^ 1));
  }
}

TEST(Clusters, Multicast) {
  Interpreter on({.checks = true});
  Array<uint32_t> in(on, {1, 2, 3, 4}), out(on, U(2));
  run(on,
      kernel(2,
             R"(
.reg .b32 %rank, %bar, %tile, %v; .reg .pred %q; .reg .b64 %g; .reg .b16 %mask;
mov.u32 %rank, %cluster_ctarank; mov.u32 %bar, bar; mov.u32 %tile, tile; mov.b16 %mask, 3;
mbarrier.init.shared::cta.b64 [%bar], 1; fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 16;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
setp.eq.u32 %q, %rank, 1;
@%q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%tile], [%p0], 16, [%bar], %mask;
)" + wait("W", "[%bar]", "0") +
                 R"(
ld.shared.u32 %v, [%tile+8]; add.u32 %v, %v, %rank; mad.wide.u32 %g, %rank, 4, %p1; st.global.u32 [%g], %v;
)",
             ".shared .align 8 .b64 bar;\n.shared .align 128 .b8 tile[128];"),
      {2, 1, 1}, {1, 1, 1}, {in.address, out.address}, 0, {2, 1, 1});
  EXPECT_EQ(out.get(), (U{3, 4}));
}

} // namespace
