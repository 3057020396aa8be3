// Finds the kernels that have one body for every target.
#include "RowKernels.h"
#include "Codegen/Elementwise.h"

using namespace mlir;

#include "Kernels/RowKernelInterface.cpp.inc"

namespace xfc {

void registerRowKernels(DialectRegistry &registry) {
  registerScalars(registry);
  registry.addExtension(+[](MLIRContext *context, XFCDialect *) {
    attachElementwiseBodies(*context);
    attachLossBodies(*context);
    attachNormBodies(*context);
    attachOptimizerBodies(*context);
    attachPairsBodies(*context);
    attachRecurrenceBodies(*context);
  });
}

std::optional<Partition> emitRowKernel(Machine &k, Operation *op) {
  if (auto kernel = dyn_cast<RowKernelOpInterface>(op))
    return kernel.emitKernel(k);
  auto scalar = dyn_cast<ScalarOpInterface>(op);
  if (!scalar)
    return std::nullopt;
  auto compute = [&](ArrayRef<Value> xs) { return scalar.emitScalar(k, xs); };
  Type type = op->getResultTypes().front();
  if (auto rows = dyn_cast<RowsType>(type))
    return k.overRows(rows.getFeatures(), buffersOf(op), compute);
  if (auto pairs = dyn_cast<PairsType>(type))
    return k.overPairs(pairs, buffersOf(op), compute);
  return k.overTensors(buffersOf(op), compute);
}

} // namespace xfc
