// Evaluates a function of an xfc module in f64, on inputs from a JSON file, and prints its results as JSON.
#include "Interpreter/Interpreter.h"
#include "Interpreter/Shape.h"
#include "mlir/Parser/Parser.h"
#include "support/CommandLine.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/Json.h"
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

using namespace mlir;
using namespace xfc;
using nlohmann::json;

namespace {

const char *const inputsHelp = R"(The inputs file is one object:
  "source"       sequences, each a list of token ids, or its length where rows are floats: [[5, 6, 3], [7, 3]]
  "target"       the same for the decoder; default none
  "pad"          the id that structures which drop padding have no key for; default 0
  "sentences"    the index of each sequence in the epoch, which keys dropout; default 0, 1, ...
  "dropout_key"  two numbers; if given, dropout is active
  "cache"        {"rows": 4, "history": [[0, 3], [0, 1]]}: a decoding step; target sequence h has one row, sees
                 the cache rows history[h], and writes the last of them
  "inputs"       arguments by name, as numbers in nested lists: {"smoothing": 0.1, "labels": [6, 3, -1]}
  "seed"         floats that "inputs" leaves out are random in [-0.5, 0.5], one stream for each name; default 0
Ids that "inputs" leaves out are those of the argument's set of rows.

The output is {"results": [{"name": ..., "shape": [...], "data": [...]}, ...]}; infinities and NaN are strings.)";

[[noreturn]] void fail(const std::string &message) { throw Error(message); }

json readJson(const std::string &path) { return parseJson(readFile(path, mostLargeBytes), path, mostLargeBytes); }

std::vector<RaggedSequence> sequencesOf(const json &inputs, const char *key) {
  std::vector<RaggedSequence> sequences;
  std::vector<uint32_t> sentences = inputs.value("sentences", std::vector<uint32_t>());
  for (const json &entry : inputs.value(key, json::array())) {
    auto sentence = static_cast<uint32_t>(sequences.size());
    if (sentence < sentences.size())
      sentence = sentences[sentence];
    // Rows of floats have no ids; INT32_MAX keeps them from being taken for pad.
    sequences.push_back(
        {entry.is_number() ? std::vector<int32_t>(entry.get<size_t>(), INT32_MAX) : entry.get<std::vector<int32_t>>(),
         sentence});
  }
  return sequences;
}

void flatten(const json &value, std::vector<double> &data) {
  if (value.is_array())
    for (const json &entry : value)
      flatten(entry, data);
  else
    data.push_back(value.get<double>());
}

int64_t elementsOf(const std::vector<int64_t> &extents) {
  int64_t elements = 1;
  for (int64_t extent : extents)
    elements *= extent;
  return elements;
}

std::string nameOf(StringAttr name, const char *otherwise, unsigned index) {
  return name ? name.getValue().str() : otherwise + std::to_string(index);
}

Tensor inputOf(func::FuncOp function, unsigned index, const Shape &shape, const json &inputs) {
  Type type = function.getArgument(index).getType();
  std::string name = nameOf(function.getArgAttrOfType<StringAttr>(index, attr::name), "argument", index);
  Tensor tensor{extentsOf(type, shape.shape()), {}};
  const int64_t elements = elementsOf(tensor.shape);
  const json given = inputs.value("inputs", json::object());
  auto rows = dyn_cast<RowsType>(type);
  if (given.contains(name)) {
    flatten(given[name], tensor.data);
  } else if (rows && rows.getElementType().isInteger(32)) {
    for (const RaggedSequence &sequence : sequencesOf(inputs, stringifyRowSet(rows.getSet()).str().c_str()))
      tensor.data.insert(tensor.data.end(), sequence.ids.begin(), sequence.ids.end());
  } else {
    std::vector<uint32_t> words(name.begin(), name.end());
    words.push_back(inputs.value("seed", 0u));
    std::seed_seq seed(words.begin(), words.end());
    std::mt19937_64 random(seed);
    for (int64_t i = 0; i < elements; ++i)
      tensor.data.push_back(std::ldexp(static_cast<double>(random() >> 11), -53) - 0.5);
  }
  if (static_cast<int64_t>(tensor.data.size()) != elements)
    fail("input " + name + " needs " + std::to_string(elements) + " numbers, found " +
         std::to_string(tensor.data.size()));
  return tensor;
}

json numbers(const std::vector<double> &data) {
  json list = json::array();
  for (double value : data)
    if (std::isfinite(value))
      list.push_back(value);
    else
      list.push_back(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
  return list;
}

json interpret(const std::string &modulePath, const std::string &functionName, const json &inputs) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  DialectRegistry registry;
  registerEvaluators(registry);
  context.appendDialectRegistry(registry);
  context.loadDialect<XFCDialect, func::FuncDialect>();
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(modulePath, ParserConfig(&context));
  if (!module)
    fail(modulePath + " is not an xfc module; see the message above");
  auto function = module->lookupSymbol<func::FuncOp>(functionName);
  if (!function) {
    std::string names;
    for (auto other : module->getOps<func::FuncOp>())
      names += (names.empty() ? "" : ", ") + other.getName().str();
    fail(modulePath + " has no function " + functionName + "; it has " + names);
  }

  Shape shape(sequencesOf(inputs, "source"), sequencesOf(inputs, "target"), inputs.value("pad", 0));
  if (inputs.contains("cache"))
    shape.setCache(inputs["cache"].at("rows"), inputs["cache"].at("history"));
  if (inputs.contains("dropout_key"))
    shape.setTraining(inputs["dropout_key"].at(0), inputs["dropout_key"].at(1));

  std::vector<Tensor> arguments;
  arguments.reserve(function.getNumArguments());
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    arguments.push_back(inputOf(function, i, shape, inputs));
  auto results = evaluate(function, shape.shape(), arguments);
  if (failed(results))
    fail(functionName + " cannot be evaluated; see the message above");
  json list = json::array();
  for (auto [i, result] : llvm::enumerate(*results))
    list.push_back({{"name", nameOf(function.getResultAttrOfType<StringAttr>(i, attr::name), "result", i)},
                    {"shape", result.shape},
                    {"data", numbers(result.data)}});
  return {{"results", list}};
}

int run(int argc, char **argv) {
  CommandLine app(
      "Evaluates a function of an xfc module in f64, in the plainest way: what generated code is compared with.",
      "xfc-interpret");
  std::string module, inputs, function = "forward", output;
  app.addOption("module", module, "the module, as printed by xfc compile --emit or xfc-opt").required();
  app.addOption("inputs", inputs, "the inputs, a JSON file").required();
  app.addOption("--function", function, "the function to evaluate").showDefault();
  app.addOption("-o,--output", output, "where the results go; standard output if not given");
  app.setFooter(inputsHelp);
  app.setWork([&] {
    std::string text;
    try {
      text = interpret(module, function, readJson(inputs)).dump() + "\n";
    } catch (const json::exception &error) {
      fail(inputs + ": " + error.what());
    }
    if (output.empty())
      std::cout << text;
    else
      writeFile(output, text);
  });
  return runCommandLine(app, argc, argv);
}

} // namespace

int main(int argc, char **argv) {
  return reportErrors([&] { return run(argc, argv); });
}
