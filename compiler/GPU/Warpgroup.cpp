// Instructions of sm_90a.
//
// Scopes. A barrier of cluster scope makes a thread's writes visible to the other block of a cluster. ptxas compiles it
// to a flush of the thread's stores to the L2 cache (MEMBAR) on one side and an invalidation of the L1 cache
// (CCTL.IVALL) on the other. That takes hundreds of cycles, too many for every block of K, and is not needed:
// - A stage is filled by bulk copies, whose completion makes the bytes visible to whoever waits at the barrier,
//   whichever block started them, and by copies of the block's own threads. So acquiring at block scope is enough.
// - A stage is handed back to both blocks, since either may fill it next. They read nothing that the stage's readers
//   have written; they only have to know that the reads are over. When a thread arrives, they are: the product that it
//   has waited for has its sums in registers, and so do earlier loads their values. An arrival is counted in another
//   block's barrier just as in the own one; cluster scope would only make it wait for stores.
// - The whole cluster meets at a barrier only at the start and at the end of a kernel. At the start, the others must
//   see one thread's mbarrier.init: that thread's fence, of cluster scope, releases just this, and the wait acquires
//   it. At the end nothing is handed over: the block's shared memory only has to outlive copies and arrivals from the
//   other block.
#include "Warpgroup.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include <cassert>

using namespace mlir;

namespace xfc::gpu {

void initBarrier(KernelBuilder &k, Value barrier, int64_t arrivals) {
  k.ptx("mbarrier.init.shared::cta.b64 [$0], $1;", {barrier, k.i32Of(static_cast<int32_t>(arrivals))}, {});
}

void fenceBarriers(KernelBuilder &k) { k.ptx("fence.mbarrier_init.release.cluster;", {}, {}); }

void arriveExpecting(KernelBuilder &k, Value barrier, int64_t bytes) {
  k.ptx("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", {barrier, k.i32Of(static_cast<int32_t>(bytes))}, {});
}

void arriveAfterCopies(KernelBuilder &k, Value barrier) {
  k.ptx("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0];", {barrier}, {});
}

void arriveAt(KernelBuilder &k, Value barrier, Value block, Value condition) {
  k.ptx("{ .reg .b64 there; mapa.shared::cluster.u64 there, $0, $1; @$2 "
        "mbarrier.arrive.release.cta.shared::cluster.b64 _, [there]; }",
        {barrier, block, condition}, {});
}

void waitForPhase(KernelBuilder &k, Value barrier, Value parity) {
  k.ptx("{ .reg .pred over; again: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 over, [$0], $1; @!over bra "
        "again; }",
        {barrier, parity}, {});
}

void copyToCluster(KernelBuilder &k, const View &to, const View &from, int64_t bytes, Value barrier, int64_t blocks) {
  Value every = arith::ConstantOp::create(k.b, k.b.getI16IntegerAttr(static_cast<int16_t>((1 << blocks) - 1)));
  k.ptx(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [$0], [$1], $2, [$3], $4;",
      {to.data, from.data, k.i32Of(static_cast<int32_t>(bytes)), barrier, every}, {});
}

Value blockOfCluster(KernelBuilder &k) { return NVVM::ClusterId::create(k.b, k.i32); }

void clusterBarrier(KernelBuilder &k) {
  k.ptx("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;", {}, {});
}

void setRegisters(KernelBuilder &k, Registers what, int64_t count) {
  NVVM::SetMaxRegisterOp::create(k.b, static_cast<int>(count),
                                 what == Registers::Get ? NVVM::SetMaxRegisterAction::increase
                                                        : NVVM::SetMaxRegisterAction::decrease);
}

void fenceProxy(KernelBuilder &k) { k.ptx("fence.proxy.async.shared::cta;", {}, {}); }

// A matrix is described to wgmma by its address, by how far apart blocks are and, in the upper half, groups of 8 lines,
// all in units of 16 bytes, and by the kind of swizzle.
static Value lowerHalfOf(KernelBuilder &k, const SwizzledMatrix &m) {
  Value address = k.truncated(LLVM::PtrToIntOp::create(k.b, k.i64, m.address));
  Value apart = k.i32Of(static_cast<int32_t>((m.along ? 1 : m.blockBytes / 16) << 16));
  return k.bitOr(k.bitAnd(k.shiftRight(address, 4), 0x3fff), apart);
}
static int64_t upperHalfOf(const SwizzledMatrix &m) {
  const int64_t swizzle = m.side == 64 ? 1 : m.side == 32 ? 2 : 3;
  return static_cast<int32_t>(swizzle << 30 | m.side);
}
// How far an index of k, a multiple of 16, is from the first, in the same units.
static int64_t offsetOf(const SwizzledMatrix &m, int64_t at) {
  return (m.along ? at / m.side * m.blockBytes + at % m.side * 2 : at * m.side * 2) / 16;
}

// A single piece of inline PTX, since the registers of the products must not be accessed between the first product and
// the wait, and the instructions must stay in order.
std::vector<Values> multiplyWarpgroup(KernelBuilder &k, ArrayRef<WarpgroupProduct> products) {
  const bool adds = !products.front().sums.empty();
  SmallVector<Value> operands;
  int64_t all = 0, depth = 0;
  for (const WarpgroupProduct &p : products) {
    assert(adds == !p.sums.empty());
    operands.append(p.sums);
    all += p.columns / 2;
    depth = std::max(depth, p.depth);
  }
  const int64_t updated = operands.size();
  auto list = [](int64_t from, int64_t n) {
    std::string text = "{";
    for (int64_t i = from; i < from + n; ++i)
      text += (i > from ? ", $" : "$") + std::to_string(i);
    return text + "}";
  };
  std::string code = "{\n.reg .pred adds, starts;\n.reg .b32 lower, upper;\n.reg .b64 a, b;\nmov.b32 lower, 0;\n"
                     "setp.eq.b32 adds, lower, 0;\nsetp.ne.b32 starts, lower, 0;\nwgmma.fence.sync.aligned;\n";
  SmallVector<int64_t> others; // the first operand of each product that is not a sum: its b, followed by its a
  for (const WarpgroupProduct &p : products) {
    others.push_back(all + operands.size());
    operands.push_back(lowerHalfOf(k, p.b));
    if (p.packed.empty())
      operands.push_back(lowerHalfOf(k, p.a));
    operands.append(p.packed);
  }
  for (int64_t at = 0; at < depth; at += 16) {
    int64_t sums = 0; // the number of the product's first
    for (auto [p, other] : llvm::zip_equal(products, others)) {
      auto describe = [&](const char *name, const SwizzledMatrix &m, int64_t operand) {
        code += "add.s32 lower, $" + std::to_string(operand) + ", " + std::to_string(offsetOf(m, at)) +
                ";\nmov.b32 upper, " + std::to_string(upperHalfOf(m)) + ";\nmov.b64 " + name + ", {lower, upper};\n";
      };
      if (at < p.depth) {
        std::string left = list(other + 1 + at / 4, 4), layout;
        if (p.packed.empty()) {
          describe("a", p.a, other + 1);
          left = "a";
          layout = p.a.along ? ", 0" : ", 1";
        }
        describe("b", p.b, other);
        code += "wgmma.mma_async.sync.aligned.m64n" + std::to_string(p.columns) + "k16.f32.bf16.bf16 " +
                list(sums, p.columns / 2) + ", " + left + ", b, " + (adds || at ? "adds" : "starts") + ", 1, 1" +
                layout + (p.b.along ? ", 0;\n" : ", 1;\n");
      }
      sums += p.columns / 2;
    }
  }
  code += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n}";
  Values flat = k.ptx(code, operands, SmallVector<Type>(all, k.element), /*pure=*/false, updated);
  std::vector<Values> results;
  const Value *next = flat.begin();
  for (const WarpgroupProduct &p : products) {
    results.emplace_back(next, next + p.columns / 2);
    next += p.columns / 2;
  }
  return results;
}

} // namespace xfc::gpu
