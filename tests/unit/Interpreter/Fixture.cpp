// Parses test programs, makes their inputs, and computes central differences.
#include "Fixture.h"
#include "Interpreter/Support.h"
#include "Transforms/Passes.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

using namespace mlir;

namespace xfc::test {

Tensor OddBatch::ids(RowSet set, bool labels) const {
  Tensor tensor{{0}, {}};
  for (const RaggedSequence &sequence : set == RowSet::source ? source : target)
    for (int32_t id : sequence.ids)
      tensor.data.push_back(labels ? (id * 5 + 2) % vocabulary : id);
  tensor.shape[0] = static_cast<int64_t>(tensor.data.size());
  if (labels)
    tensor.data[1] = -1;
  return tensor;
}

Tensor OddBatch::labelLists(RowSet set, int64_t count) const {
  const Tensor labels = ids(set, true);
  Tensor lists{{labels.shape[0], count}, {}};
  for (int64_t i = 0; i < labels.shape[0]; ++i)
    for (int64_t j = 0; j < count; ++j)
      lists.data.push_back(j == 0             ? labels.data[i]
                           : (i + j) % 4 == 3 ? -1
                           : (i + j) % 4 == 2 ? std::max(labels.data[i], 0.0)
                                              : static_cast<double>((i * 3 + j * 4) % vocabulary));
  return lists;
}

Tensor OddBatch::links(RowSet set, int64_t count) const {
  Tensor links{{ids(set, false).shape[0], count}, {}};
  for (int64_t i = 0; i < links.shape[0]; ++i)
    for (int64_t j = 0; j < count; ++j)
      links.data.push_back((i + 2 * j) % 5 == 4 ? -1 : static_cast<double>((i + j) % 3));
  return links;
}

MLIRContext &Program::context() {
  static MLIRContext context(MLIRContext::Threading::DISABLED);
  DialectRegistry registry;
  registerEvaluators(registry);
  context.appendDialectRegistry(registry);
  context.loadDialect<XFCDialect, func::FuncDialect>();
  return context;
}

static std::string aliases() {
  std::string text = "!sids = !xfc.rows<source, i32>\n!tids = !xfc.rows<target, i32>\n"
                     "!tlists = !xfc.rows<target, 3xi32>\n!s = !xfc.rows<source, f64>\n!t "
                     "= !xfc.rows<target, f64>\n";
  for (int features = 1; features <= 12; ++features)
    for (const char *set : {"source", "target"})
      text += std::string("!") + set[0] + std::to_string(features) + " = !xfc.rows<" + set + ", " +
              std::to_string(features) + "xf64>\n";
  for (const char *pairs :
       {"ss = source, source, padding", "sn = source, source", "tt = target, target, padding causal",
        "tc = target, target, causal", "ts = target, source, padding"})
    text += "!" + std::string(pairs, 2) + " = !xfc.pairs<" + (pairs + 5) + ", 2xf64>\n";
  return text;
}

std::string lossFunction(const Arguments &parameters, const Arguments &others, const std::string &type,
                         const std::string &body) {
  std::string list;
  auto add = [&](const Arguments &arguments, const char *role) {
    for (const auto &[name, argumentType] : arguments)
      list += (list.empty() ? "%" : ", %") + name + ": " + argumentType + " {xfc.name = \"" + name +
              "\", xfc.role = \"" + role + "\"}";
  };
  add(parameters, "parameter");
  add(others, "input");
  return "func.func @loss(" + list + ") -> " + type + " {\n" + body + "\nreturn %loss : " + type + "\n}\n";
}

Program::Program(const std::string &text, const std::string &function) : name(function) {
  module = parseSourceString<ModuleOp>(aliases() + text, ParserConfig(&context()));
  if (!module || !module->lookupSymbol<func::FuncOp>(name))
    throw std::runtime_error("the program does not parse, or has no @" + name + ":\n" + text);
}

void Program::differentiate() {
  PassManager manager(&context());
  manager.addPass(createDifferentiate());
  if (failed(manager.run(*module)))
    throw std::runtime_error("@loss cannot be differentiated");
  name = "loss_and_gradients";
}

func::FuncOp Program::function() { return module->lookupSymbol<func::FuncOp>(name); }

std::string Program::argumentName(unsigned i) {
  auto attribute = function().getArgAttrOfType<StringAttr>(i, attr::name);
  return attribute ? attribute.getValue().str() : "argument" + std::to_string(i);
}

bool Program::isParameter(unsigned i) {
  auto role = function().getArgAttrOfType<StringAttr>(i, attr::role);
  return role && role.getValue() == attr::parameter;
}

std::vector<Tensor> Program::inputs(const OddBatch &batch) {
  std::vector<Tensor> inputs;
  for (BlockArgument argument : function().getArguments()) {
    std::string name = argumentName(argument.getArgNumber());
    auto rows = dyn_cast<RowsType>(argument.getType());
    if (rows && rows.getElementType().isInteger(32)) {
      inputs.push_back(rows.getShape().empty() ? batch.ids(rows.getSet(), name == "labels")
                       : name == "links"       ? batch.links(rows.getSet(), rows.getFeatures())
                                               : batch.labelLists(rows.getSet(), rows.getFeatures()));
      continue;
    }
    Tensor tensor = zeros(batch.shape(), argument.getType());
    std::mt19937_64 random(std::hash<std::string>()(name));
    // Weights of losses are near 1, because the tolerances of gradients are for sums of losses near 10.
    std::uniform_real_distribution<> distribution(name == "loss_scale" ? 0.75 : -1, name == "loss_scale" ? 1.25 : 1);
    for (int64_t i = 0; double &value : tensor.data)
      value = name == "smoothing" ? 0.1 * static_cast<double>(1 + i++ % 7) : distribution(random);
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

llvm::SmallVector<Tensor> Program::evaluate(const OddBatch &batch, const std::vector<Tensor> &inputs) {
  auto results = xfc::evaluate(function(), batch.shape(), inputs);
  if (failed(results))
    throw std::runtime_error("@" + name + " cannot be evaluated");
  return *results;
}

void expectNear(const Tensor &a, const Tensor &b, double tolerance, const std::string &what) {
  ASSERT_EQ(a.shape, b.shape) << what;
  double largest = 1;
  for (double value : b.data)
    largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < a.data.size(); ++i) {
    ASSERT_TRUE(std::isfinite(a.data[i])) << what << ", element " << i;
    ASSERT_NEAR(a.data[i], b.data[i], tolerance * largest) << what << ", element " << i;
  }
}

// Random element indices, beginning with that of the largest element.
static std::vector<size_t> placesOf(const Tensor &gradient, size_t samples) {
  std::vector<size_t> places(gradient.data.size());
  std::iota(places.begin(), places.end(), size_t(0));
  std::shuffle(places.begin(), places.end(), std::mt19937_64(places.size()));
  std::iter_swap(places.begin(), std::max_element(places.begin(), places.end(), [&](size_t a, size_t b) {
                   return std::abs(gradient.data[a]) < std::abs(gradient.data[b]);
                 }));
  places.resize(std::min(samples, places.size()));
  return places;
}

void expectGradients(const std::string &text, size_t samples) {
  OddBatch batch;
  Program loss(text), gradients(text);
  gradients.differentiate();
  std::vector<Tensor> inputs = loss.inputs(batch), withWeights = gradients.inputs(batch);
  llvm::SmallVector<Tensor> results = gradients.evaluate(batch, withWeights);

  // The gradients are those of a sum of the losses that `loss_scale`, the last argument, weights. In f64, the rounding
  // of that sum would show in the differences.
  const std::vector<double> &weights = withWeights.back().data;
  auto sum = [&] {
    llvm::SmallVector<Tensor> losses = loss.evaluate(batch, inputs);
    return std::inner_product(weights.begin(), weights.end(), losses[0].data.begin(), 0.0L);
  };
  std::map<std::string, const Tensor *> found;
  for (unsigned i = 0; i < results.size(); ++i)
    if (auto name = gradients.function().getResultAttrOfType<StringAttr>(i, attr::name))
      found[name.getValue().str()] = &results[i];
  for (unsigned i = 0; i < inputs.size(); ++i) {
    if (!loss.isParameter(i))
      continue;
    std::string name = loss.argumentName(i);
    ASSERT_TRUE(found.count("grad." + name)) << "no gradient of " << name;
    const Tensor &gradient = *found["grad." + name];
    ASSERT_EQ(gradient.shape, inputs[i].shape) << name;
    Tensor computed{{}, {}}, difference{{}, {}};
    double largest = 0;
    for (size_t e : placesOf(gradient, samples)) {
      double &value = inputs[i].data[e], kept = value;
      auto over = [&](double step) {
        value = kept + step;
        const long double above = sum();
        value = kept - step;
        return static_cast<double>((above - sum()) / (2 * step));
      };
      // Combine differences over two step sizes, so that the third-derivative error cancels.
      difference.data.push_back((4 * over(5e-5) - over(1e-4)) / 3);
      computed.data.push_back(gradient.data[e]);
      value = kept;
      largest = std::max(largest, std::abs(difference.data.back()));
    }
    computed.shape = difference.shape = {static_cast<int64_t>(computed.data.size())};
    // A key bias adds the same number to all scores of a query, which does not change the softmax.
    const bool matters = !llvm::StringRef(name).ends_with(".k.bias");
    EXPECT_EQ(largest > 1e-5, matters) << name << ": " << largest
                                       << (matters ? " does not matter: the check could not fail" : "");
    // 1e-6 of the largest; rounding a loss near 10 changes the difference by 1e-10.
    expectNear(computed, difference, std::min(1e-8, 1e-6 * largest + 1e-10), "gradient of " + name);
  }
}

} // namespace xfc::test
