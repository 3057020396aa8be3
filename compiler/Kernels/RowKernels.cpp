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

// Computes the elements from .. to - 1 of the last buffer from the same elements of the others.
static void overElements(Machine &k, ArrayRef<BufferIndex> buffers, Value from, Value to, const ComputeOne &compute) {
  const auto blocks = llvm::map_to_vector(buffers, [&](BufferIndex i) { return k.buffer(i); });
  k.update(blocks, from, to, [&](ArrayRef<Value> xs) {
    Values updated(xs.size());
    updated.back() = compute(xs.drop_back());
    return updated;
  });
}

// A chunk is one head of a sequence, whose pairs follow each other in memory.
static Partition overPairs(Machine &k, int64_t heads, ArrayRef<BufferIndex> buffers, const ComputeOne &compute) {
  Value sequence = k.div(k.chunk, heads), sequences = k.field(k.rows(), offsetof(xfc_rows, sequences), k.i64);
  k.when(k.less(sequence, sequences), [&] {
    Value offsets = k.field(k.keys(), offsetof(xfc_keys, pair_offsets), k.ptr), before = k.loadI64(offsets, sequence),
          count = k.sub(k.loadI64(offsets, k.add(sequence, 1)), before), ofHeads = k.mul(k.rem(k.chunk, heads), count),
          from = k.add(k.mul(before, heads), ofHeads);
    overElements(k, buffers, from, k.add(from, count), compute);
  });
  return {Partition::Unit::Sequences, 1, heads};
}

// The elements of dense tensors that follow each other in memory, as many as the call's `elements` says.
static Partition overTensors(Machine &k, ArrayRef<BufferIndex> buffers, const ComputeOne &compute) {
  constexpr int64_t part = SquareSumOp::elementsOfPart;
  Value from = k.mul(k.chunk, part), count = k.elementCount();
  overElements(k, buffers, from, k.min(k.add(from, part), count), compute);
  return {Partition::Unit::Elements, part, 1};
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
    return overPairs(k, pairs.getHeads(), buffersOf(op), compute);
  return overTensors(k, buffersOf(op), compute);
}

} // namespace xfc
