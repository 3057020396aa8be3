// Runs pairs through a teacher, and selects the most probable tokens of each label.
#include "train/Teacher.h"
#include "decode/TeacherForcing.h"
#include "plan/Programs.h"
#include "train/Prepare.h"
#include <cmath>

namespace xfc {

void TaughtPairs::add(std::span<const int32_t> source, std::span<const int32_t> target, Weights ofPair, Links aligned,
                      std::string place) {
  sources.emplace_back(source.begin(), source.end());
  targets.emplace_back(target.begin(), target.end());
  weights.emplace_back(ofPair.begin(), ofPair.end());
  links.emplace_back(aligned.begin(), aligned.end());
  places.push_back(std::move(place));
}

void TaughtPairs::clear() {
  sources.clear();
  targets.clear();
  weights.clear();
  links.clear();
  places.clear();
}

Teacher::Teacher(Engine &engine, int64_t tokens, int64_t batchTokens)
    : engine(engine), tokens(static_cast<size_t>(tokens)), batchTokens(batchTokens) {
  const Module &module = engine.module();
  const Program *forward = module.find(programs::forward);
  if (!forward || std::ranges::none_of(forward->outputs, [](const Output &o) { return o.name == names::logits; }))
    throw Error("--distribution: model '" + module.model +
                "' has no distribution of tokens: that needs a decoder and a head");
  if (tokens > module.targetVocab)
    throw Error("--distribution " + std::to_string(tokens) + ": the target vocabulary has only " +
                std::to_string(module.targetVocab) + " tokens");
}

// Selects the tokens with the largest of the logits; false if their probabilities are not finite. The sum is taken in
// double precision, in the order of the tokens.
template <typename Number>
static bool selectTokens(const Number *logits, int64_t vocabulary, std::span<TokenProbability> top) {
  size_t found = 0;
  for (int32_t token = 0; token < vocabulary; ++token) {
    if (found == top.size() && !(logits[token] > logits[top.back().token]))
      continue;
    size_t at = found < top.size() ? found++ : found - 1;
    for (; at > 0 && logits[token] > logits[top[at - 1].token]; --at)
      top[at] = top[at - 1];
    top[at].token = token;
  }
  const auto largest = static_cast<double>(logits[top[0].token]);
  double sum = 0;
  for (int64_t token = 0; token < vocabulary; ++token)
    sum += std::exp(static_cast<double>(logits[token]) - largest);
  for (TokenProbability &one : top)
    one.probability = static_cast<float>(std::exp(static_cast<double>(logits[one.token]) - largest) / sum);
  return std::isfinite(sum);
}

std::vector<std::vector<TokenProbability>> Teacher::distributions(const TaughtPairs &pairs) {
  const Module &module = engine.module();
  std::vector<std::vector<int32_t>> inputs;
  inputs.reserve(pairs.size());
  for (const std::vector<int32_t> &target : pairs.targets)
    inputs.emplace_back(target.begin(), target.end() - 1);
  std::vector<std::vector<TokenProbability>> results(pairs.size());
  const Parallel parallel = onThreadsOf(engine);
  inBatches(pairs.sources, inputs, batchTokens, module.pad, [&](std::span<const size_t> numbers, Batch &batch) {
    const Binding bindings[] = {{names::source, batch.ids(XFC_SOURCE).data()},
                                {names::target, batch.ids(XFC_TARGET).data()}};
    engine.run(programs::forward, batch.shape(), bindings);
    const View logits = engine.output(programs::forward, names::logits);
    const int32_t *const firstRows = batch.shape().sets[XFC_TARGET].offsets;
    inChunks(parallel, numbers.size(), [&](size_t i) {
      std::vector<TokenProbability> &own = results[numbers[i]];
      const size_t labels = inputs[numbers[i]].size();
      own.resize(labels * tokens);
      for (size_t label = 0; label < labels; ++label) {
        const int64_t at = (firstRows[i] + static_cast<int64_t>(label)) * logits.stride;
        const std::span<TokenProbability> top = std::span(own).subspan(label * tokens, tokens);
        if (!(module.type == DType::F64
                  ? selectTokens(static_cast<const double *>(logits.data) + at, module.targetVocab, top)
                  : selectTokens(static_cast<const float *>(logits.data) + at, module.targetVocab, top)))
          throw Error(pairs.places[numbers[i]] +
                      ": the teacher gives no finite probabilities; its weights are broken or too large");
      }
    });
  });
  return results;
}

} // namespace xfc
