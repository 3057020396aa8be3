// Walks every op of the dialect and names the interface that is missing.
#include "Dialect/XFC.h"
#include <gtest/gtest.h>
#include <set>

using namespace mlir;
using namespace xfc;

namespace {

struct Ops : testing::Test {
  Ops() { context.loadDialect<XFCDialect>(); }
  // Names without the dialect's. A declaration computes nothing.
  std::vector<std::pair<std::string, RegisteredOperationName>> all() {
    std::vector<std::pair<std::string, RegisteredOperationName>> ops;
    for (RegisteredOperationName op : context.getRegisteredOperationsByDialect("xfc"))
      if (op.getStringRef() != ParameterOp::getOperationName())
        ops.emplace_back(op.getStringRef().substr(4).str(), op);
    return ops;
  }
  MLIRContext context{MLIRContext::Threading::DISABLED};
};

TEST_F(Ops, canBeEvaluated) {
  EXPECT_GT(all().size(), 35u);
  for (auto &[name, op] : all())
    EXPECT_EQ(op.hasInterface<EvaluableOpInterface>(), name != "yield") << name;
}

// What is no kernel is laid out by the compiler.
TEST_F(Ops, areKernelsOrViews) {
  const std::set<std::string> laidOut = {"split", "join", "concat", "slice", "sinusoid", "yield"};
  for (auto &[name, op] : all())
    EXPECT_EQ(op.hasInterface<KernelOpInterface>(), !laidOut.count(name)) << name;
}

// What fusion makes has no plain lowering: its parts have.
TEST_F(Ops, thatAreKernelsArePlainUnlessFused) {
  const std::set<std::string> fused = {"add_norm",
                                       "attention",
                                       "attention_grad",
                                       "cross_entropy",
                                       "cross_entropy_grad",
                                       "linear_cross_entropy",
                                       "linear_cross_entropy_with_grad",
                                       "linear_candidates",
                                       "merge_candidates",
                                       "norm_grad_with_parts",
                                       "sum_parts"};
  for (auto &[name, op] : all())
    EXPECT_EQ(op.hasInterface<PlainOpInterface>(), op.hasInterface<KernelOpInterface>() && !fused.count(name)) << name;
}

// Only ops that differentiation, the optimizer or decoding make have no gradient.
TEST_F(Ops, ofTheForwardProgramHaveGradients) {
  const std::set<std::string> others = {"join",
                                        "slice",
                                        "zeros",
                                        "fill",
                                        "combine_transposed",
                                        "sinusoid",
                                        "cache_write",
                                        "yield",
                                        "square_sum",
                                        "clip_factor",
                                        "adam",
                                        "candidates",
                                        "linear_candidates",
                                        "merge_candidates",
                                        "norm_grad_with_parts",
                                        "sum_parts"};
  for (auto &[name, op] : all()) {
    bool gradient = name.size() > 5 && name.substr(name.size() - 5) == "_grad";
    EXPECT_EQ(op.hasInterface<DifferentiableOpInterface>(), !gradient && !others.count(name)) << name;
  }
}

// Dead code is removed, and equal ops are merged.
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
