// Tests each family of single-lane instructions against values computed on the host.
#include "Fixture.h"
#include <cmath>
#include <limits>

using namespace xfc::ptx;
using namespace xfc::ptx::test;

namespace {

// result[lane] = op(x[lane], y[lane], z[lane]), with each operand in a 64-bit register truncated to what the type
// needs. `op` is the instruction up to its operands, `bits` the widths of d, a, b, c.
std::vector<uint64_t> apply(const std::string &op, std::vector<int> bits, std::vector<std::vector<uint64_t>> operands) {
  Interpreter on;
  size_t n = operands.at(0).size();
  std::string body = ".reg .b64 %x<5>;\n.reg .b32 %r<5>;\n.reg .b16 %h<5>;\nadd.u64 %p0, %p0, %t8;\n";
  auto name = [&](size_t k) { return (bits[k] == 64 ? "%x" : bits[k] == 32 ? "%r" : "%h") + std::to_string(k); };
  std::vector<uint64_t> parameters;
  Array<uint64_t> result(on, std::vector<uint64_t>(n, 0));
  parameters.push_back(result.address);
  std::vector<std::unique_ptr<Array<uint64_t>>> arrays;
  std::string call = op + " " + name(0);
  for (size_t k = 1; k < bits.size(); ++k) {
    arrays.push_back(std::make_unique<Array<uint64_t>>(on, operands[k - 1]));
    parameters.push_back(arrays.back()->address);
    body += "add.u64 %p" + std::to_string(k) + ", %p" + std::to_string(k) + ", %t8;\n";
    body += "ld.global.b" + std::to_string(bits[k]) + " " + name(k) + ", [%p" + std::to_string(k) + "];\n";
    call += ", " + name(k);
  }
  body += call + ";\nst.global.b" + std::to_string(bits[0]) + " [%p0], " + name(0) + ";\n";
  run(on, kernel(int(parameters.size()), body), {}, {uint32_t(n), 1, 1}, parameters);
  return result.get();
}

using V = std::vector<uint64_t>;
template <class... T> V list(T... values) { return {uint64_t(values)...}; }
uint64_t f(float x) { return std::bit_cast<uint32_t>(x); }
uint64_t d(double x) { return std::bit_cast<uint64_t>(x); }
template <class... T> V floats(T... values) { return {f(float(values))...}; }
constexpr uint64_t nan32 = 0x7fffffff;
const float inf = std::numeric_limits<float>::infinity();

TEST(Integers, AddSubMul) {
  EXPECT_EQ(apply("add.s32", {32, 32, 32}, {list(1, 0xffffffff, 0x7fffffff), list(2, 1, 1)}), list(3, 0, 0x80000000));
  EXPECT_EQ(apply("sub.u16", {16, 16, 16}, {list(1, 7), list(2, 5)}), list(0xffff, 2));
  EXPECT_EQ(apply("add.sat.s32", {32, 32, 32}, {list(0x7fffffff, 0x80000000), list(1, 0xffffffff)}),
            list(0x7fffffff, 0x80000000));
  EXPECT_EQ(apply("mul.lo.s64", {64, 64, 64}, {V{uint64_t(-3)}, V{5}}), V{uint64_t(-15)});
  EXPECT_EQ(apply("mul.hi.u32", {32, 32, 32}, {V{0x80000000}, V{6}}), V{3});
  EXPECT_EQ(apply("mul.hi.s32", {32, 32, 32}, {V{0xffffffff}, V{6}}), V{0xffffffff});
  EXPECT_EQ(apply("mul.hi.u64", {64, 64, 64}, {V{uint64_t(1) << 63}, V{6}}), V{3});
  EXPECT_EQ(apply("mul.wide.s32", {64, 32, 32}, {V{0xffffffff}, V{0x7fffffff}}), V{uint64_t(-int64_t(0x7fffffff))});
  EXPECT_EQ(apply("mad.lo.u32", {32, 32, 32, 32}, {V{0x10001}, V{0x10000}, V{5}}), V{0x10005});
  EXPECT_EQ(apply("mad.wide.u32", {64, 32, 32, 64}, {V{0xffffffff}, V{0xffffffff}, V{1}}), V{0xfffffffe00000002});
  EXPECT_EQ(apply("div.s32", {32, 32, 32}, {list(0xfffffff9, 7, 0x80000000), list(2, 0xfffffffe, 0xffffffff)}),
            list(0xfffffffd, 0xfffffffd, 0x80000000));
  EXPECT_EQ(apply("rem.s32", {32, 32, 32}, {list(0xfffffff9, 7), list(2, 0xfffffffe)}), list(0xffffffff, 1));
  EXPECT_EQ(apply("div.u64", {64, 64, 64}, {V{uint64_t(-1)}, V{10}}), V{1844674407370955161u});
  EXPECT_EQ(apply("min.s16", {16, 16, 16}, {list(0xffff, 3), list(1, 2)}), list(0xffff, 2));
  EXPECT_EQ(apply("min.relu.s32", {32, 32, 32}, {list(~0u, 3, 5), list(1, 2, 7)}), list(0, 2, 5));
  EXPECT_EQ(apply("max.relu.s32", {32, 32, 32}, {list(~0u, 3), list(~1u, 2)}), list(0, 3));
  EXPECT_EQ(apply("max.u16", {16, 16, 16}, {list(0xffff, 3), list(1, 2)}), list(0xffff, 3));
  EXPECT_EQ(apply("neg.s32", {32, 32}, {list(5, 0x80000000)}), list(0xfffffffb, 0x80000000));
  EXPECT_EQ(apply("abs.s64", {64, 64}, {V{uint64_t(-9)}}), V{9});
  EXPECT_EQ(apply("sad.s32", {32, 32, 32, 32}, {V{0xffffffff}, V{4}, V{10}}), V{15});
}

TEST(Integers, Bits) {
  EXPECT_EQ(apply("shl.b32", {32, 32, 32}, {list(1, 1, 1), list(31, 32, 255)}), list(0x80000000, 0, 0));
  EXPECT_EQ(apply("shr.s32", {32, 32, 32}, {list(0x80000000, 0x80000000), list(4, 40)}), list(0xf8000000, 0xffffffff));
  EXPECT_EQ(apply("shr.u16", {16, 16, 32}, {list(0x8000, 0x8000), list(4, 16)}), list(0x800, 0));
  EXPECT_EQ(apply("shf.l.wrap.b32", {32, 32, 32, 32},
                  {list(0x80000001, 0x80000001), list(0x12345678, 0x12345678), list(4, 36)}),
            list(0x23456788, 0x23456788));
  EXPECT_EQ(apply("shf.r.clamp.b32", {32, 32, 32, 32},
                  {list(0x12345678, 0x12345678), list(0xabcdef01, 0xabcdef01), list(8, 40)}),
            list(0x01123456, 0xabcdef01));
  EXPECT_EQ(apply("prmt.b32", {32, 32, 32, 32}, {V{0x83828180}, V{0x87868584}, V{0x7531}}), V{0x87858381});
  EXPECT_EQ(apply("prmt.b32", {32, 32, 32, 32}, {V{0x03820100}, V{0}, V{0xba98}}), V{0x00ff0000});
  for (auto [mode, selector, want] : {std::tuple{"f4e", 1, 0x84838281},
                                      {"b4e", 1, 0x86878081},
                                      {"rc8", 2, 0x82828282},
                                      {"ecl", 2, 0x83828282},
                                      {"ecr", 1, 0x81818180},
                                      {"rc16", 1, 0x83828382}})
    EXPECT_EQ(
        apply("prmt.b32." + std::string(mode), {32, 32, 32, 32}, {V{0x83828180}, V{0x87868584}, V{uint64_t(selector)}}),
        V{want})
        << mode;
  EXPECT_EQ(apply("bfe.u32", {32, 32, 32, 32}, {list(0xabcdef01, 0xabcdef01), list(8, 28), list(12, 8)}),
            list(0xdef, 0xa));
  EXPECT_EQ(apply("bfe.s32", {32, 32, 32, 32}, {list(0xabcdef01, 0x7f), list(8, 4), list(12, 3)}),
            list(0xfffffdef, 0xffffffff));
  EXPECT_EQ(apply("bfi.b32", {32, 32, 32, 32, 32}, {V{0xff}, V{0}, V{4}, V{6}}), V{0x3f0});
  EXPECT_EQ(apply("popc.b64", {32, 64}, {V{0xf0f0f0f0f0f0f0f0}}), V{32});
  EXPECT_EQ(apply("clz.b32", {32, 32}, {list(0, 1, 0x80000000)}), list(32, 31, 0));
  EXPECT_EQ(apply("bfind.u32", {32, 32}, {list(0, 1, 0x80000000)}), list(0xffffffff, 0, 31));
  EXPECT_EQ(apply("brev.b32", {32, 32}, {V{1}}), V{0x80000000});
  EXPECT_EQ(apply("not.b16", {16, 16}, {V{0xf}}), V{0xfff0});
  // (a & b) ^ c: 0xf0 & 0xcc ^ 0xaa
  constexpr int table = (0xf0 & 0xcc) ^ 0xaa;
  Interpreter on;
  Array<uint32_t> out(on, {0});
  run(on,
      kernel(1, ".reg .b32 %a; lop3.b32 %a, 0xff00ff00, 0x0ff00ff0, 0x12345678, " + std::to_string(table) +
                    "; st.global.b32 [%p0], %a;"),
      {}, {}, {out.address});
  EXPECT_EQ(out.get()[0], (0xff00ff00 & 0x0ff00ff0) ^ 0x12345678u);
}

TEST(Floats, Arithmetic) {
  EXPECT_EQ(apply("add.f32", {32, 32, 32}, {floats(1, inf, 0x1p-130f), floats(0x1p-24f, -inf, 0x1p-130f)}),
            list(f(1), nan32, f(0x1p-129f)));
  EXPECT_EQ(apply("add.ftz.f32", {32, 32, 32}, {floats(0x1p-130f, -0x1p-130f), floats(0x1p-130f, -0x1p-130f)}),
            list(f(0), f(-0.0f)));
  EXPECT_EQ(apply("mul.rn.ftz.f32", {32, 32, 32}, {floats(0x1p-100f, -0x1p-100f), floats(0x1p-30f, 0x1p-30f)}),
            list(f(0), f(-0.0f)));
  EXPECT_EQ(apply("sub.rz.f32", {32, 32, 32}, {floats(1, -1), floats(0x1p-30f, -0x1p-30f)}),
            list(0x3f7fffff, 0xbf7fffff));
  EXPECT_EQ(apply("add.rp.f32", {32, 32, 32}, {floats(1), floats(0x1p-60f)}), list(0x3f800001));
  EXPECT_EQ(apply("add.rm.f32", {32, 32, 32}, {floats(-1), floats(-0x1p-100f)}), list(0xbf800001));
  EXPECT_EQ(apply("add.sat.f32", {32, 32, 32}, {floats(1, -3, 0.25), floats(3, 1, 0.5)}), list(f(1), f(0), f(0.75f)));
  // One rounding: (1 + 2^-12)^2 - 1 - 2^-11 = 2^-24, which two roundings would lose.
  EXPECT_EQ(apply("fma.rn.f32", {32, 32, 32, 32}, {floats(1 + 0x1p-12f), floats(1 + 0x1p-12f), floats(-1 - 0x1p-11f)}),
            list(f(0x1p-24f)));
  EXPECT_EQ(apply("fma.rz.f32", {32, 32, 32, 32}, {floats(3), floats(5), floats(-0x1p-60f)}),
            list(f(std::nextafter(15.0f, 0.0f))));
  EXPECT_EQ(apply("div.rn.f32", {32, 32, 32}, {floats(1, 1, 0), floats(3, 0, 0)}), list(f(1.0f / 3), f(inf), nan32));
  EXPECT_EQ(apply("fma.rn.f64", {64, 64, 64, 64}, {V{d(3)}, V{d(5)}, V{d(1)}}), V{d(16)});
  EXPECT_EQ(apply("neg.f32", {32, 32}, {floats(0, 2)}), list(f(-0.0f), f(-2)));
  EXPECT_EQ(apply("abs.ftz.f32", {32, 32}, {floats(-2, -0x1p-140f)}), list(f(2), f(0)));
  EXPECT_EQ(apply("min.f32", {32, 32, 32}, {list(f(0), nan32, nan32, f(1)), list(f(-0.0f), f(2), nan32, f(inf))}),
            list(f(-0.0f), f(2), nan32, f(1)));
  EXPECT_EQ(apply("max.NaN.f32", {32, 32, 32}, {list(f(-0.0f), nan32, f(1)), list(f(0), f(2), f(3))}),
            list(f(0), nan32, f(3)));
}

TEST(Floats, Functions) {
  EXPECT_EQ(apply("ex2.approx.ftz.f32", {32, 32}, {floats(3, -130, -inf, 0.5)}),
            list(f(8), f(0), f(0), f(float(std::exp2(0.5)))));
  EXPECT_EQ(apply("lg2.approx.f32", {32, 32}, {floats(8, 0, -1)}), list(f(3), f(-inf), nan32));
  EXPECT_EQ(apply("rcp.approx.ftz.f32", {32, 32}, {floats(4, 0x1p127f, -0x1p-140f)}), list(f(0.25f), f(0), f(-inf)));
  EXPECT_EQ(apply("rsqrt.approx.f32", {32, 32}, {floats(16, 0)}), list(f(0.25f), f(inf)));
  EXPECT_EQ(apply("sqrt.rn.f32", {32, 32}, {floats(2, -1)}), list(f(std::sqrt(2.0f)), nan32));
  EXPECT_EQ(apply("tanh.approx.f32", {32, 32}, {floats(0.5)}), list(f(float(std::tanh(0.5)))));
  EXPECT_EQ(apply("sin.approx.f32", {32, 32}, {floats(0.5)}), list(f(float(std::sin(0.5)))));
}

TEST(Floats, Halves) {
  // 1 + 2^-8 is halfway between two bf16 and rounds to even; a little more rounds up.
  EXPECT_EQ(apply("fma.rn.bf16", {16, 16, 16, 16}, {list(0x3f80, 0x3f80), list(0x3f80, 0x3f80), list(0x3b80, 0x3b81)}),
            list(0x3f80, 0x3f81));
  // 7 * 37 / 256 is halfway between two bf16; then one smallest bit below that.
  EXPECT_EQ(apply("fma.rn.bf16", {16, 16, 16, 16}, {list(0x40e0, 0x40e0), list(0x3e14, 0x3e14), list(0x8d80, 0x0d80)}),
            list(0x3f81, 0x3f82));
  EXPECT_EQ(apply("fma.rn.bf16x2", {32, 32, 32, 32}, {V{0x40003f80}, V{0x40403f80}, V{0x3f803f80}}), V{0x40e04000});
  EXPECT_EQ(apply("mul.rn.f16", {16, 16, 16}, {V{0x4200}, V{0x3800}}), V{0x3e00}); // 3 * 0.5
  EXPECT_EQ(apply("add.rn.f16x2", {32, 32, 32}, {V{0x7bff3c00}, V{0x7bff0001}}), V{0x7c003c00});
  EXPECT_EQ(apply("max.bf16x2", {32, 32, 32}, {V{0xbf803f80}, V{0xc0004000}}), V{0xbf804000});
  EXPECT_EQ(apply("neg.bf16x2", {32, 32}, {V{0x3f80bf80}}), V{0xbf803f80});
}

TEST(Conversions, Integers) {
  EXPECT_EQ(apply("cvt.s32.s8", {32, 32}, {list(0x180, 0x7f)}), list(0xffffff80, 0x7f));
  EXPECT_EQ(apply("cvt.u64.u32", {64, 32}, {V{0xffffffff}}), V{0xffffffff});
  EXPECT_EQ(apply("cvt.s64.s32", {64, 32}, {V{0xffffffff}}), V{uint64_t(-1)});
  EXPECT_EQ(apply("cvt.u16.u32", {16, 32}, {V{0x12345678}}), V{0x5678});
  EXPECT_EQ(apply("cvt.sat.u8.s32", {16, 32}, {list(300, 0xffffffff, 5)}), list(255, 0, 5));
}

TEST(Conversions, Floats) {
  EXPECT_EQ(apply("cvt.rn.f32.s32", {32, 32}, {list(0xffffffff, 16777217)}), list(f(-1), f(16777216)));
  EXPECT_EQ(apply("cvt.rn.f32.u64", {32, 64}, {V{(uint64_t(1) << 62) + (uint64_t(1) << 38) + 1}}),
            list(f(0x1p62f + 0x1p39f)));
  EXPECT_EQ(apply("cvt.rzi.s32.f32", {32, 32}, {list(f(-1.9f), f(3e9f), nan32)}), list(0xffffffff, 0x7fffffff, 0));
  EXPECT_EQ(apply("cvt.rni.s32.f32", {32, 32}, {floats(2.5, 3.5, -0.5)}), list(2, 4, 0));
  EXPECT_EQ(apply("cvt.rzi.u32.f32", {32, 32}, {floats(-5, 4e9)}), list(0, 4000000000));
  EXPECT_EQ(apply("cvt.rmi.f32.f32", {32, 32}, {floats(-1.5, 2.5)}), floats(-2, 2));
  EXPECT_EQ(apply("cvt.f64.f32", {64, 32}, {floats(1.5)}), V{d(1.5)});
  EXPECT_EQ(apply("cvt.rz.f32.f64", {32, 64}, {V{d(1 + 0x1.8p-24)}}), list(f(1)));
  EXPECT_EQ(apply("cvt.rn.bf16.f32", {16, 32}, {list(f(1 + 0x1p-8f), f(1 + 0x1.8p-7f), 0x7f800001)}),
            list(0x3f80, 0x3f82, 0x7fff));
  EXPECT_EQ(apply("cvt.rn.bf16x2.f32", {32, 32, 32}, {floats(1), floats(2)}), list(0x3f804000));
  EXPECT_EQ(apply("cvt.rn.relu.bf16x2.f32", {32, 32, 32}, {floats(-1), floats(2)}), list(0x00004000));
  EXPECT_EQ(apply("cvt.rn.f16.f32", {16, 32}, {floats(65520, 65519, 0x1p-25f, 0x1.8p-24f, -1)}),
            list(0x7c00, 0x7bff, 0, 2, 0xbc00));
  EXPECT_EQ(apply("cvt.f32.f16", {32, 16}, {list(1, 0xc000, 0x7c00)}), list(f(0x1p-24f), f(-2), f(inf)));
  EXPECT_EQ(apply("cvt.f32.bf16", {32, 16}, {list(0xc000)}), list(f(-2)));
  EXPECT_EQ(apply("cvt.rna.tf32.f32", {32, 32}, {floats(1 + 0x1p-11f, 1 + 0x1.fp-12f)}), floats(1 + 0x1p-10f, 1));
  EXPECT_EQ(apply("cvt.sat.f32.f32", {32, 32}, {list(f(2), f(-1), f(0.5f), nan32)}), floats(1, 0, 0.5, 0));
}

// Every comparison against its definition, for pairs that include a NaN.
TEST(Selection, Comparisons) {
  struct {
    const char *name;
    bool less, equal, greater, unordered;
  } table[] = {{"eq", 0, 1, 0, 0},  {"ne", 1, 0, 1, 0},  {"lt", 1, 0, 0, 0},  {"le", 1, 1, 0, 0},  {"gt", 0, 0, 1, 0},
               {"ge", 0, 1, 1, 0},  {"equ", 0, 1, 0, 1}, {"neu", 1, 0, 1, 1}, {"ltu", 1, 0, 0, 1}, {"leu", 1, 1, 0, 1},
               {"gtu", 0, 0, 1, 1}, {"geu", 0, 1, 1, 1}, {"num", 1, 1, 1, 0}, {"nan", 0, 0, 0, 1}};
  for (auto &c : table) {
    SCOPED_TRACE(c.name);
    Interpreter on;
    Array<uint32_t> a(on, {uint32_t(f(1)), uint32_t(f(2)), uint32_t(f(3)), uint32_t(nan32)}),
        b(on, std::vector<uint32_t>(4, uint32_t(f(2))));
    Array<uint32_t> out(on, std::vector<uint32_t>(4));
    run(on,
        kernel(3, ".reg .pred %q; .reg .b32 %a, %b, %r; add.u64 %p0, %p0, %t4; add.u64 %p1, %p1, %t4; add.u64 %p2, "
                  "%p2, %t4;\n"
                  "ld.global.f32 %a, [%p0]; ld.global.f32 %b, [%p1]; setp." +
                      std::string(c.name) + ".f32 %q, %a, %b; selp.b32 %r, 1, 0, %q; st.global.u32 [%p2], %r;"),
        {}, {4, 1, 1}, {a.address, b.address, out.address});
    EXPECT_EQ(out.get(), (std::vector<uint32_t>{c.less, c.equal, c.greater, c.unordered}));
  }
}

TEST(Selection, PairsAndCombinations) {
  Interpreter on;
  Array<uint32_t> out(on, std::vector<uint32_t>(64));
  run(on,
      kernel(1, ".reg .pred %a, %q, %o; .reg .b32 %r, %s; add.u64 %p0, %p0, %t8;\n"
                "setp.lt.u32 %a, %t, 20; setp.ge.and.s32 %q|%o, %t, 10, !%a;\n"
                "selp.u32 %r, 1, 0, %q; selp.u32 %s, 1, 0, %o; st.global.v2.b32 [%p0], {%r, %s};"),
      {}, {32, 1, 1}, {out.address});
  auto got = out.get();
  for (uint32_t t = 0; t < 32; ++t) {
    EXPECT_EQ(got[2 * t], t >= 10 && t >= 20) << t;
    EXPECT_EQ(got[2 * t + 1], t < 10 && t >= 20) << t;
  }
}

TEST(Decoding, RefusesWhatItDoesNotKnow) {
  Interpreter on;
  auto refusal = [&](const std::string &body) {
    try {
      on.load(kernel(0, body));
    } catch (const Error &e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal(".reg .b32 %a;\nfrobnicate.b32 %a, %a;"), "line 14: unknown instruction frobnicate");
  EXPECT_EQ(refusal(".reg .b32 %a;\nadd.foo.s32 %a, %a, 1;"), "line 14: add: unknown modifier .foo");
  EXPECT_EQ(refusal(".reg .b32 %a;\nadd.s64 %a, %a, 1;"), "line 14: add: register %a has 32 bits, expected 64");
  EXPECT_EQ(refusal("\nadd.s32 %t, %nosuch, 1;"), "line 14: add: unknown register %nosuch");
  EXPECT_EQ(refusal("\nbra NOWHERE;"), "line 14: unknown label NOWHERE");
  EXPECT_EQ(refusal("\nadd.s32 %t, %t;"), "line 14: add: has 2 operands, expected 3");
  EXPECT_EQ(refusal("\ncvt.s32.f32 %t, %t;"), "line 14: cvt: to an integer needs .rni, .rzi, .rmi or .rpi");
}

} // namespace
