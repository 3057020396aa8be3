// The plain target: each op lowers itself, and upstream passes do the rest.
#include "Plain.h"
#include "Lowerings.h"
#include "MachineCode/MachineCode.h"
#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "support/Error.h"
#include <memory>

using namespace mlir;

// The header that declares it includes all that transforms linalg's ops and vectors.
namespace mlir {
std::unique_ptr<Pass> createConvertLinalgToLoopsPass();
}

#include "Plain/PlainInterface.cpp.inc"

namespace xfc {

void registerPlainLowerings(DialectRegistry &registry) {
  registerScalars(registry);
  registry.addExtension(+[](MLIRContext *context, XFCDialect *) {
    attachElementwiseLowerings(*context);
    attachLinearLowerings(*context);
    attachNormLowerings(*context);
    attachAttentionLowerings(*context);
    attachLossLowerings(*context);
    attachEmbeddingLowerings(*context);
    attachCandidatesLowerings(*context);
    attachOptimizerLowerings(*context);
    attachRecurrenceLowerings(*context);
  });
}

void PlainTarget::addDialects(DialectRegistry &registry) const {
  registerPlainLowerings(registry);
  registry.insert<arith::ArithDialect, func::FuncDialect, linalg::LinalgDialect, LLVM::LLVMDialect, math::MathDialect,
                  memref::MemRefDialect, scf::SCFDialect>();
}

KernelInfo PlainTarget::emit(Operation *op, llvm::StringRef name, ModuleOp code) const {
  auto plain = dyn_cast<PlainOpInterface>(op);
  auto scalar = dyn_cast<ScalarOpInterface>(op);
  // A region that is not empty is an epilogue added by fusion.
  if ((!plain && !scalar) || llvm::any_of(op->getRegions(), [](Region &region) { return !region.empty(); }))
    throw Error("--cpu plain: cannot compile the fused kernel '" + name.str() + "'; add --no-fuse");
  if (auto product = dyn_cast<ProductOpInterface>(op); product && product.getCompute())
    throw Error("--cpu plain: only multiplies in f32 or f64, but '" + name.str() +
                "' has another compute type; use --dtype f32");
  PlainBuilder builder(code, name, op);
  if (plain)
    plain.lowerPlain(builder);
  else
    lowerElementwise(builder, code, scalar);
  return {};
}

PackInfo PlainTarget::emitPack(RankedTensorType, Packing, llvm::StringRef, ModuleOp) const {
  llvm_unreachable("the plain path packs nothing");
}

void PlainTarget::addLowering(OpPassManager &manager) const {
  manager.addPass(createConvertLinalgToLoopsPass());
  manager.addPass(memref::createExpandStridedMetadataPass());
  manager.addPass(createLowerAffinePass());
  manager.addPass(createConvertMathToLibmPass());
  manager.addPass(createFinalizeMemRefToLLVMConversionPass());
  addLoweringToLLVM(manager);
}

} // namespace xfc
