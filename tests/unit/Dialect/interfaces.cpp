// Checks for every op of the dialect that it has the required interfaces, and names the one that is missing.
#include "CPU/CPU.h"
#include "CPU/Emitters.h"
#include "GPU/Emitters.h"
#include "GPU/GPU.h"
#include "Interpreter/Interpreter.h"
#include "Kernels/RowKernels.h"
#include "Plain/Lowerings.h"
#include "Plain/Plain.h"
#include <gtest/gtest.h>

using namespace mlir;
using namespace xfc;

namespace {

struct Ops : testing::Test {
  Ops() {
    DialectRegistry registry;
    registerEvaluators(registry);
    registerCPUKernels(registry);
    registerGPUKernels(registry);
    registerPlainLowerings(registry);
    context.appendDialectRegistry(registry);
    context.loadDialect<XFCDialect>();
  }
  // All ops, named without the dialect's prefix, except for the parameter declaration, which computes nothing.
  std::vector<std::pair<std::string, RegisteredOperationName>> all() {
    std::vector<std::pair<std::string, RegisteredOperationName>> ops;
    for (RegisteredOperationName op : context.getRegisteredOperationsByDialect("xfc"))
      if (op.getStringRef() != ParameterOp::getOperationName())
        ops.emplace_back(op.getStringRef().substr(4).str(), op);
    return ops;
  }
  static bool isKernel(RegisteredOperationName op) { return op.hasInterface<KernelOpInterface>(); }
  static bool isScalar(RegisteredOperationName op) { return op.hasInterface<ScalarOpInterface>(); }
  MLIRContext context{MLIRContext::Threading::DISABLED};
};

TEST_F(Ops, canBeEvaluated) {
  EXPECT_GT(all().size(), 35u);
  for (auto &[name, op] : all())
    EXPECT_NE(op.hasInterface<EvaluableOpInterface>(), op.hasTrait<OpTrait::IsTerminator>()) << name;
}

// Each op is launched as a kernel, only describes where values lie, or ends a region.
TEST_F(Ops, areKernelsOrViews) {
  for (auto &[name, op] : all())
    EXPECT_EQ(isKernel(op) + op.hasInterface<ViewOpInterface>() + op.hasTrait<OpTrait::IsTerminator>(), 1) << name;
}

// Elementwise ops have a scalar function. Others have a kernel that all targets share, or one on each target, which may
// also have its own beside the shared one; no op has both.
TEST_F(Ops, thatAreKernelsHaveOneOnEachTarget) {
  for (auto &[name, op] : all()) {
    const bool shared = op.hasInterface<RowKernelOpInterface>();
    EXPECT_EQ((shared || op.hasInterface<CPUKernelOpInterface>()) + isScalar(op), isKernel(op)) << name;
    EXPECT_EQ((shared || op.hasInterface<xfc::gpu::GPUKernelOpInterface>()) + isScalar(op), isKernel(op)) << name;
  }
}

// Fused ops have no plain lowering, because the ops they replace have one. That of an elementwise op may be derived
// from its scalar function.
TEST_F(Ops, thatAreKernelsArePlainUnlessFused) {
  for (auto &[name, op] : all())
    EXPECT_EQ(op.hasInterface<PlainOpInterface>() || isScalar(op), isKernel(op) && !op.hasTrait<Fused>()) << name;
}

// Ops that an epilogue may hold have a scalar function, except for dropout, which draws many random numbers at once.
TEST_F(Ops, ofEpiloguesAreScalar) {
  for (auto &[name, op] : all())
    if (op.hasTrait<InEpilogue>()) {
      EXPECT_TRUE(isKernel(op)) << name;
      EXPECT_NE(isScalar(op), name == "dropout") << name;
    }
}

TEST_F(Ops, haveGradientsOrSayWhyNot) {
  for (auto &[name, op] : all())
    EXPECT_EQ(op.hasInterface<DifferentiableOpInterface>() + op.hasTrait<NoGradient>() +
                  op.hasTrait<OpTrait::IsTerminator>(),
              1)
        << name;
}

// So that dead code is removed and equal ops are merged.
TEST_F(Ops, haveNoSideEffects) {
  for (auto &[name, op] : all())
    EXPECT_TRUE(op.hasInterface<MemoryEffectOpInterface>()) << name;
}

TEST_F(Ops, ofPairsKnowTheirStructure) {
  Type element = Float32Type::get(&context);
  auto structure = [&](RowSet queries, RowSet keys, bool padding, bool causal) {
    return PairsType::get(&context, queries, keys, padding, causal, 2, element).getStructure();
  };
  EXPECT_EQ(structure(RowSet::source, RowSet::source, true, false), XFC_KEYS(XFC_SOURCE_SOURCE, 1, 0));
  EXPECT_EQ(structure(RowSet::target, RowSet::target, true, true), XFC_KEYS(XFC_TARGET_TARGET, 1, 1));
  EXPECT_EQ(structure(RowSet::target, RowSet::source, false, false), XFC_KEYS(XFC_TARGET_SOURCE, 0, 0));
  EXPECT_EQ(structure(RowSet::target, RowSet::cache, false, true), XFC_KEYS(XFC_TARGET_CACHE, 0, 1));
}

} // namespace
