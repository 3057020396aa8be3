// Packs weights in the training step, where a packed copy that is kept would serve only one launch.
#include "Dialect/Values.h"
#include "Passes.h"
#include "plan/Programs.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_PACKINSTEP
#include "Schedule/Passes.h.inc"

namespace {

struct PackInStep : impl::PackInStepBase<PackInStep> {
  void runOnOperation() override {
    const SymbolTable symbols(getOperation());
    auto program = symbols.lookup<ProgramOp>(programs::lossAndGradients);
    if (!program)
      return;
    for (auto launch : llvm::to_vector(program.getOps<LaunchOp>())) {
      auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
      for (OpOperand &operand : launch.getInputsMutable())
        if (FlatSymbolRefAttr form = kernel ? kernel.getPackingOf(operand.getOperandNumber()) : FlatSymbolRefAttr())
          if (auto packing = symbols.lookup<PackKernelOp>(form.getValue()); packing && !packing.getCompute())
            pack(operand, packing);
    }
  }

private:
  void pack(OpOperand &operand, PackKernelOp kernel) {
    auto reader = cast<LaunchOp>(operand.getOwner());
    auto weight = cast<RankedTensorType>(kernel.getWeight());
    const auto bytes = static_cast<int64_t>(kernel.getBytes());
    auto type = RankedTensorType::get({bytes / elementBytes(weight)}, weight.getElementType());
    Size traffic;
    traffic.constant = weight.getNumElements() * elementBytes(weight) + bytes;
    const RowSet rows = reader.getDomain().getRows();
    OpBuilder builder(reader);
    auto launch = LaunchOp::create(builder, reader.getLoc(), TypeRange(type), kernel.getSymName(), operand.get(),
                                   DomainAttr::get(&getContext(), LaunchDomain{rows, rows, std::nullopt}), ArrayAttr(),
                                   IntegerAttr(), ArrayAttr(), 0, ArrayAttr(), SizeAttr::get(&getContext(), Size()),
                                   SizeAttr::get(&getContext(), traffic), DenseI32ArrayAttr());
    operand.set(launch.getResult(0));
    ++packed;
  }
};

} // namespace
} // namespace xfc
