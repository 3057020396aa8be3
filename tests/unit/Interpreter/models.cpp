// Checks the gradients of every shipped model that has parameters, with dropout, against central differences of the
// whole program in f64.
#include "../Import/Models.h"
#include "Fixture.h"
#include "Import/Import.h"
#include "Pipeline/Pipeline.h"
#include "mlir/IR/MLIRContext.h"
#include <filesystem>

using namespace xfc;
using namespace xfc::test;

namespace {

std::vector<std::string> modelFiles() {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(XFC_MODELS))
    if (std::string name = entry.path().stem();
        entry.path().extension() == ".json" && name != "schema" && name != "plain-attention")
      names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

// The model with small dimensions, for those of these params that it has.
Description smallModel(const std::string &name) {
  const std::map<std::string, double> known = shippedModel(name).params;
  std::vector<Override> overrides;
  for (const auto &[key, value] : std::map<std::string, std::string>{{"source_vocab", "11"},
                                                                     {"target_vocab", "11"},
                                                                     {"d_model", "6"},
                                                                     {"heads", "2"},
                                                                     {"encoder_heads", "3"},
                                                                     {"decoder_heads", "2"},
                                                                     {"key_dim", "3"},
                                                                     {"value_dim", "2"},
                                                                     {"encoder_layers", "2"},
                                                                     {"decoder_layers", "2"},
                                                                     {"d_ff", "5"},
                                                                     {"max_length", "7"}})
    if (known.count(key))
      overrides.push_back({key, value});
  return shippedModel(name, overrides);
}

class ShippedModel : public testing::TestWithParam<std::tuple<std::string, Phase>> {};

TEST_P(ShippedModel, gradientsEqualCentralDifferences) {
  auto [name, phase] = GetParam();
  PipelineOptions options;
  options.dtype = "f64";
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  auto model = importModel(smallModel(name), {.decode = false, .f64 = true}, context);
  std::string text = emitPhase(*model, options, phase);
  // An encoder alone has no loss: use the sum of its output.
  if (name == "encoder-block")
    text.replace(text.find("@forward("), 9, "@loss(");
  expectGradients(text, 12);
}

INSTANTIATE_TEST_SUITE_P(all, ShippedModel,
                         testing::Combine(testing::ValuesIn(modelFiles()),
                                          testing::Values(Phase::Imported, Phase::Fused)),
                         [](const auto &info) {
                           std::string name =
                               std::get<0>(info.param) + (std::get<1>(info.param) == Phase::Fused ? "_fused" : "");
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

} // namespace
