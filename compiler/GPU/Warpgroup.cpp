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

// The descriptor of a matrix: its address, the stride of blocks of 64 columns and that of groups of 8 lines, all in
// units of 16 bytes; bit 62 selects the swizzle.
static Value descriptorOf(KernelBuilder &k, const SwizzledMatrix &m) {
  const int64_t constant = int64_t(1) << 62 | int64_t(1024 / 16) << 32 | (m.along ? 1 : m.blockBytes / 16) << 16;
  Value address = LLVM::PtrToIntOp::create(k.b, k.i64, m.address), strides = k.index(constant);
  return k.bitOr(k.bitAnd(k.shiftRight(address, 4), 0x3fff), strides);
}

// A single piece of inline PTX, since the registers of the products must not be accessed between the first product and
// the wait, and the instructions must stay in order.
Values multiplyWarpgroup(KernelBuilder &k, const Values &sums, const SwizzledMatrix &a, const SwizzledMatrix &b,
                         int64_t depth, Value ones) {
  const int64_t all = sums.size(), count = all - (ones ? 4 : 0);
  auto stepOf = [](const SwizzledMatrix &m) { return (m.along ? 32 : 2048) / 16; }; // within a line, or 16 lines
  auto list = [](int64_t from, int64_t n) {
    std::string text = "{";
    for (int64_t i = from; i < from + n; ++i)
      text += (i > from ? ", $" : "$") + std::to_string(i);
    return text + "}";
  };
  auto product = [&](int64_t from, int64_t n, const char *right, bool along) {
    return "wgmma.mma_async.sync.aligned.m64n" + std::to_string(2 * n) + "k16.f32.bf16.bf16 " + list(from, n) +
           ", a, " + right + ", adds, 1, 1, " + (a.along ? "0" : "1") + ", " + (along ? "0" : "1") + ";\n";
  };
  auto operand = [&](int64_t i) { return "$" + std::to_string(2 * all + i); };
  std::string code = "{\n.reg .pred adds;\n.reg .b64 a, b;\nmov.b64 a, " + operand(0) + ";\nmov.b64 b, " + operand(1) +
                     ";\nsetp.eq.b64 adds, a, a;\nwgmma.fence.sync.aligned;\n";
  const std::string onesText = operand(2);
  for (int64_t at = 0; at < depth; at += 16) {
    if (at)
      code += "add.s64 a, a, " + std::to_string(stepOf(a)) + ";\nadd.s64 b, b, " + std::to_string(stepOf(b)) + ";\n";
    code += product(0, count, "b", b.along);
    if (ones)
      code += product(count, 4, onesText.c_str(), true);
  }
  code += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n}";
  SmallVector<Value> operands(sums.begin(), sums.end());
  operands.append({descriptorOf(k, a), descriptorOf(k, b)});
  if (ones)
    operands.push_back(descriptorOf(k, {ones, /*along=*/true, 0}));
  return k.ptx(code, operands, SmallVector<Type>(all, k.element), /*pure=*/false, /*updated=*/all);
}

} // namespace xfc::gpu
