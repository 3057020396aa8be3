// Turns the kernels of decoding steps into one that can run a whole step.
#include "Analysis/Kernels.h"
#include "Dependencies.h"
#include "Dialect/Values.h"
#include "Passes.h"
#include "TargetPass.h"
#include "support/Error.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_MAKEPERSISTENT
#include "Schedule/Passes.h.inc"

namespace {

struct MakePersistent : TargetPass<impl::MakePersistentBase<MakePersistent>> {
  using TargetPass::TargetPass;

  void runOnOperation() override {
    code = codeOf(getOperation());
    if (!code)
      return;
    const SymbolTable symbols(getOperation());
    llvm::SetVector<KernelOp> bodies;
    SmallVector<ProgramOp> steps;
    for (auto program : getOperation().getOps<ProgramOp>()) {
      llvm::SetVector<KernelOp> own = bodiesOf(program, symbols);
      if (own.empty())
        continue;
      bodies.insert_range(own);
      steps.push_back(program);
    }
    if (steps.empty())
      return;
    constexpr StringLiteral name = "decoding_steps";
    SmallVector<KernelBody> parts;
    SmallVector<Attribute> names;
    for (KernelOp body : bodies) {
      parts.push_back({body.getSymName(), static_cast<int64_t>(body.getScratch()),
                       static_cast<int64_t>(body.getThreads()), listedRowsOf(body.getOp())});
      names.push_back(FlatSymbolRefAttr::get(body));
    }
    try {
      const KernelInfo info = target->emitPersistent(parts, name, code);
      OpBuilder builder(steps.front());
      auto kernel = KernelOp::create(builder, steps.front().getLoc(), name);
      kernel.setPartitionAttr(PartitionAttr::get(&getContext(), info.partition));
      kernel.setScratch(info.scratch);
      kernel.setThreads(info.threads);
      kernel.setBodiesAttr(builder.getArrayAttr(names));
      for (ProgramOp step : steps) {
        step.setPersistentAttr(FlatSymbolRefAttr::get(kernel));
        for (auto [launch, after] : llvm::zip_equal(step.getOps<LaunchOp>(), dependenciesOf(step)))
          if (!after.empty())
            launch.setAfter(after);
      }
      persistent += steps.size();
    } catch (const Error &error) {
      steps.front().emitError(error.what());
      signalPassFailure();
    }
  }

private:
  // The keys and values of an attention. One with a reach may read few of those that are listed.
  static SmallVector<ListedRows, 2> listedRowsOf(Operation *op) {
    SmallVector<ListedRows, 2> listed;
    if (auto attention = dyn_cast_or_null<AttentionOp>(op); attention && !attention.getReach())
      for (OpOperand *rows : {&attention.getKMutable(), &attention.getVMutable()}) {
        auto type = cast<RowsType>(rows->get().getType());
        const int64_t bytes = elementBytes(type);
        listed.push_back({rows->getOperandNumber(), bytes, type.getFeatures() * bytes});
      }
    return listed;
  }

  // The kernels that a decoding step of few rows runs, whichever variants for few rows that takes; none if it is no
  // decoding step, or if one of them cannot be a body.
  llvm::SetVector<KernelOp> bodiesOf(ProgramOp program, const SymbolTable &symbols) {
    llvm::SetVector<KernelOp> bodies;
    for (auto launch : program.getOps<LaunchOp>()) {
      auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
      if (!isDecodingStep(launch) || !kernel || kernel.getReduction())
        return {};
      auto smaller = [&](KernelOp of) {
        FlatSymbolRefAttr small = of.getSmallAttr();
        return small ? symbols.lookup<KernelOp>(small.getValue()) : KernelOp();
      };
      // A kernel that has variants is itself for more rows.
      for (KernelOp body = kernel.getSmallAttr() ? smaller(kernel) : kernel; body; body = smaller(body)) {
        if (body.getResident() || !target->canBeBody(body.getSymName(), code))
          return {};
        bodies.insert(body);
      }
    }
    return bodies;
  }

  ModuleOp code;
};

} // namespace

std::unique_ptr<Pass> createMakePersistent(const Target &target) { return std::make_unique<MakePersistent>(target); }

} // namespace xfc
