// Instructions of sm_90a.
//
// Scopes. What a thread has written is made visible to the other block of a cluster by a barrier of that scope, which
// ptxas renders as a flush of the thread's stores to the second cache (MEMBAR) on the one side and as a loss of the
// first cache (CCTL.IVALL) on the other: hundreds of cycles, which must not be paid for each block of K. They need not
// be:
// - A stage is filled by bulk copies, whose arrival makes the bytes visible to whoever waits at the barrier, whichever
//   block asked for them, and by copies of the block's own threads. So who waits for it acquires from its own block.
// - A stage is given back to both blocks, since the next bytes in it may come from either. Nothing that its readers
//   wrote is read by those who are told: what has to come first is that they have read. A product waited for has its
//   sums in registers, and the loads before it have their values there, so the reads are over when the thread arrives.
//   That arrival counts in another block's barrier as it does in one's own; its scope would add only stores to wait
//   for.
// - The barriers that the whole cluster passes once are at the begin and at the end of a kernel. At the begin one
//   thread's mbarrier.init is what the others must see: its fence, of the cluster's scope, releases just that, and the
//   wait acquires it. At the end nothing is handed over at all: the block's shared memory must only outlive copies and
//   arrivals from the other one.
#include "Warpgroup.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

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

void copyToCluster(KernelBuilder &k, Value to, Value from, int64_t bytes, Value barrier, int64_t blocks) {
  Value every = arith::ConstantOp::create(k.b, k.b.getI16IntegerAttr(static_cast<int16_t>((1 << blocks) - 1)));
  k.ptx(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [$0], [$1], $2, [$3], $4;",
      {to, from, k.i32Of(static_cast<int32_t>(bytes)), barrier, every}, {});
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

// One piece of PTX: between the first product and the wait no register of theirs may be touched, and whatever is, is to
// stay in order.
Values multiplyWarpgroup(KernelBuilder &k, const Values &sums, ArrayRef<Value> a, const SwizzledMatrix &b) {
  const int64_t count = sums.size(), columns = 2 * count, steps = a.size() / 4;
  // A descriptor: the address in 16 bytes, and how far apart blocks of 64 columns and groups of 8 lines are, in 16
  // bytes; bit 62 is the swizzle.
  const int64_t constant = int64_t(1) << 62 | int64_t(1024 / 16) << 32 | (b.along ? 1 : b.blockBytes / 16) << 16;
  Value address = LLVM::PtrToIntOp::create(k.b, k.i64, b.address);
  Value descriptor = k.bitOr(k.bitAnd(k.shiftRight(address, 4), 0x3fff), k.index(constant));
  const int64_t next = (b.along ? 32 : 2048) / 16; // 16 of k further on: within a line, or 16 lines

  auto list = [](int64_t from, int64_t n) {
    std::string text = "{";
    for (int64_t i = from; i < from + n; ++i)
      text += (i > from ? ", $" : "$") + std::to_string(i);
    return text + "}";
  };
  const int64_t firstA = 2 * count, at = firstA + static_cast<int64_t>(a.size());
  const std::string anyA = "$" + std::to_string(firstA);
  std::string code = "{\n.reg .pred adds;\n.reg .b64 b;\nsetp.eq.b32 adds, " + anyA + ", " + anyA + ";\nmov.b64 b, $" +
                     std::to_string(at) + ";\nwgmma.fence.sync.aligned;\n";
  for (int64_t step = 0; step < steps; ++step) {
    if (step)
      code += "add.s64 b, b, " + std::to_string(next) + ";\n";
    code += "wgmma.mma_async.sync.aligned.m64n" + std::to_string(columns) + "k16.f32.bf16.bf16 " + list(0, count) +
            ", " + list(firstA + 4 * step, 4) + ", b, adds, 1, 1, " + (b.along ? "0" : "1") + ";\n";
  }
  code += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n}";
  SmallVector<Value> operands(sums.begin(), sums.end());
  operands.append(a.begin(), a.end());
  operands.push_back(descriptor);
  return k.ptx(code, operands, SmallVector<Type>(count, k.element), /*pure=*/false, /*updated=*/count);
}

} // namespace xfc::gpu
