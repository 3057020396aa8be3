// Fuzzes a module as text through all stages up to the plan, and some modules further, to the code of kernels.
#include "../Fuzz.h"
#include "Compiler.h"
#include "Import/Import.h"
#include "Pipeline/Pipeline.h"
#include <vector>

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::expectOnlyErrors([&] {
    fuzz::withContext([&](mlir::MLIRContext &context) {
      mlir::DialectRegistry registry;
      addPlanDialects(registry);
      context.appendDialectRegistry(registry);
      const mlir::OwningOpRef<mlir::ModuleOp> module = parseModule(fuzz::textOf(data, size), "model.mlir", context);
      if (!module || (!isPlan(*module) && !prepareModel(*module, {})))
        throw Error("refused with diagnostics");
      PipelineOptions options;
      options.targets = {{Platform::CPU, {"x86-64-v3"}}};
      if (isPlan(*module))
        takeFromPlan(options, *module);
      if (size % 4 == 0)
        emitPhase(*module, options, Phase::Lowered);
      else
        planOf(*module, options);
    });
  });
  return 0;
}

// Replaces words and symbols by others from the text and numbers by other numbers, removes or repeats words and lines,
// and puts words into brackets that are nested far beyond any limit.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  fuzz::Random random(seed);
  std::string text(fuzz::textOf(data, size));
  if (random.oneIn(12))
    return LLVMFuzzerMutate(data, size, most);
  auto kindOf = [](char c) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '%' || c == '.' || c == '@')
      return 1;
    return std::isspace(static_cast<unsigned char>(c)) ? 0 : 2;
  };
  struct Token {
    size_t begin, size;
  };
  std::vector<Token> tokens, lines;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    const int kind = kindOf(text[at]);
    while (kind == 1 && end < text.size() && kindOf(text[end]) == 1)
      ++end;
    if (kind != 0)
      tokens.push_back({at, end - at});
    at = end;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    lines.push_back({at, end - at});
    at = end;
  }
  if (tokens.empty())
    return LLVMFuzzerMutate(data, size, most);
  const Token token = tokens[random.below(tokens.size())], other = tokens[random.below(tokens.size())];
  const Token line = lines[random.below(lines.size())], another = lines[random.below(lines.size())];
  const std::string word = text.substr(other.begin, other.size), row = text.substr(another.begin, another.size);
  static const char *numbers[] = {
      "0", "1", "2", "-1", "3", "64", "9223372036854775807", "4294967296", "1.0e+300", "0x7FF8000000000000"};
  if (random.oneIn(24)) {
    const size_t depth = std::min(size_t{1} << random.below(17), most / 4), kind = random.below(4);
    text.insert(token.begin + token.size, std::string(depth, ")]}>"[kind]));
    text.insert(token.begin, std::string(depth, "([{<"[kind]));
    return fuzz::replaced(data, size, most, text);
  }
  switch (random.below(6)) {
  case 0:
    text.replace(token.begin, token.size, word);
    break;
  case 1: { // another number in place of the next one
    const size_t digit = text.find_first_of("0123456789", token.begin);
    if (digit != text.npos)
      text.replace(digit, std::min(text.find_first_not_of("0123456789", digit), text.size()) - digit,
                   numbers[random.below(std::size(numbers))]);
    break;
  }
  case 2:
    text.erase(token.begin, token.size);
    break;
  case 3:
    text.insert(token.begin, word + " ");
    break;
  case 4:
    text.erase(line.begin, line.size);
    break;
  default:
    text.insert(line.begin, row);
  }
  return fuzz::replaced(data, size, most, text);
}
