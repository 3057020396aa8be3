// Turns outlined kernels into code for a target. The code is a module inside the plan.
#include "Passes.h"
#include "TargetPass.h"
#include "support/Error.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_GENERATEKERNELS
#include "Schedule/Passes.h.inc"

namespace {

struct GenerateKernels : TargetPass<impl::GenerateKernelsBase<GenerateKernels>> {
  using TargetPass::TargetPass;

  void runOnOperation() override {
    if (!target->name.empty()) {
      if (ModuleOp present = codeOf(getOperation())) {
        present.emitError("the plan has code already, for ") << present->getAttr(targetAttr);
        return signalPassFailure();
      }
      auto builder = OpBuilder::atBlockEnd(getOperation().getBody());
      code = ModuleOp::create(builder, builder.getUnknownLoc(), codeName);
      code->setAttr(targetAttr, builder.getStringAttr(target->name));
    }
    // Only kernels of decoding steps get a small-M variant: other programs usually have enough rows, and another kernel
    // is worth its code only where the longest-running block determines the time of a step.
    llvm::DenseSet<StringAttr> decoding;
    for (auto program : getOperation().getOps<ProgramOp>())
      if (llvm::any_of(program.getArgumentTypes(), isCache))
        for (auto launch : program.getOps<LaunchOp>())
          decoding.insert(launch.getKernelAttr().getAttr());
    for (auto kernel : llvm::to_vector(getOperation().getOps<KernelOp>())) {
      if (!kernel.getOp() || kernel.getPartition())
        continue;
      try {
        generate(kernel, decoding.contains(kernel.getSymNameAttr()));
      } catch (const Error &error) {
        kernel.getOp()->emitError(error.what());
        return signalPassFailure();
      }
    }
  }

private:
  static bool isCache(Type type) {
    auto rows = dyn_cast<RowsType>(type);
    return rows && rows.getSet() == RowSet::cache;
  }

  void describe(KernelOp kernel, const KernelInfo &info) {
    kernel.setPartitionAttr(PartitionAttr::get(&getContext(), info.partition));
    kernel.setScratch(info.scratch);
    kernel.setThreads(info.threads);
    kernel.setChunkBytes(info.chunkBytes);
    kernel.setResident(info.resident);
  }

  void generate(KernelOp kernel, bool decoding) {
    Operation *op = kernel.getOp();
    const std::string name = kernel.getSymName().str();
    OpBuilder builder(&getContext());
    builder.setInsertionPointAfter(kernel);
    auto companion = [&](const std::string &own, const KernelInfo &info) {
      auto made = KernelOp::create(builder, kernel.getLoc(), own);
      describe(made, info);
      return made;
    };
    describe(kernel, target->emit(op, name, code));
    if (kernel.getChunkBytes())
      kernel.setReductionAttr(
          FlatSymbolRefAttr::get(companion(name + "_reduction", target->emitReduction(op, name + "_reduction", code))));
    if (decoding) {
      KernelOp larger = kernel;
      for (const SmallKernel &small : target->emitSmall(op, name + "_small", code)) {
        KernelOp variant = companion(small.name, small.kernel);
        larger.setSmallAttr(FlatSymbolRefAttr::get(variant));
        larger.setSmallRows(small.rows);
        larger = variant;
      }
    }
    SmallVector<Attribute> packing(op->getNumOperands(), builder.getUnitAttr());
    for (unsigned i = 0; i < op->getNumOperands(); ++i)
      if (std::optional<Packing> form = target->packs(op, i)) {
        packing[i] = packKernel(builder, kernel.getLoc(), cast<RankedTensorType>(op->getOperand(i).getType()), *form);
        kernel.setPackingAttr(builder.getArrayAttr({}));
      }
    if (kernel.getPacking())
      kernel.setPackingAttr(builder.getArrayAttr(packing));
  }

  // All weights of the same shape and form share one pack kernel.
  FlatSymbolRefAttr packKernel(OpBuilder &builder, Location location, RankedTensorType weight, const Packing &form) {
    std::string name = form.transposed ? "pack_transposed_" : form.blocks ? "pack_blocks_" : "pack_";
    if (form.compute)
      name += stringifyComputeType(*form.compute).str() + "_";
    name += std::to_string(weight.getDimSize(0)) + "x" + std::to_string(weight.getDimSize(1));
    if (!getOperation().lookupSymbol(name)) {
      const PackInfo info = target->emitPack(weight, form, name, code);
      auto compute = form.compute ? ComputeTypeAttr::get(builder.getContext(), *form.compute) : ComputeTypeAttr();
      PackKernelOp::create(builder, location, builder.getStringAttr(name), TypeAttr::get(weight),
                           form.transposed ? builder.getUnitAttr() : UnitAttr(), compute,
                           form.blocks ? builder.getUnitAttr() : UnitAttr(), builder.getI64IntegerAttr(info.bytes),
                           builder.getI64IntegerAttr(info.chunks), builder.getI64IntegerAttr(info.scratch),
                           builder.getI64IntegerAttr(info.threads));
    }
    return FlatSymbolRefAttr::get(builder.getContext(), name);
  }

  ModuleOp code; // of the kernels; null if the target emits none
};

} // namespace

std::unique_ptr<Pass> createGenerateKernels(const Target &target) { return std::make_unique<GenerateKernels>(target); }

} // namespace xfc
