// Log-probabilities of given target sentences, through the program score.
#include "decode/Score.h"
#include "decode/TeacherForcing.h"
#include "plan/Programs.h"
#include <numeric>

namespace xfc {

namespace {

// The scores of tokens by one model.
std::vector<std::vector<double>> scoresOf(Engine &engine, const std::vector<std::vector<int32_t>> &sources,
                                          const std::vector<std::vector<int32_t>> &targets, int64_t batchTokens,
                                          const std::function<void()> &beforePass) {
  const Module &module = engine.module();
  if (!engine.has(programs::score))
    throw Error("model '" + module.model + "' has no program 'score': it needs a decoder and a head");
  std::vector<std::vector<int32_t>> inputs; // what the decoder reads: start, then the target
  inputs.reserve(targets.size());
  for (const std::vector<int32_t> &target : targets) {
    inputs.push_back({module.start});
    inputs.back().insert(inputs.back().end(), target.begin(), target.end());
  }
  std::vector<std::vector<double>> results(sources.size());
  inBatches(sources, inputs, batchTokens, module.pad, [&](std::span<const size_t> pairs, Batch &batch) {
    if (beforePass)
      beforePass();
    std::vector<int32_t> labels; // what it should predict: the target, then eos
    for (size_t pair : pairs) {
      labels.insert(labels.end(), targets[pair].begin(), targets[pair].end());
      labels.push_back(module.eos);
    }
    double smoothing = 0; // all bits 0, whatever the element type
    const Binding bindings[] = {{names::source, batch.ids(XFC_SOURCE).data()},
                                {names::target, batch.ids(XFC_TARGET).data()},
                                {names::labels, labels.data()},
                                {names::smoothing, &smoothing}};
    engine.run(programs::score, batch.shape(), bindings);
    View nll = engine.output(programs::score, names::nll);
    int64_t row = 0;
    for (size_t pair : pairs)
      for (size_t token = 0; token < inputs[pair].size(); ++token)
        results[pair].push_back(-nll.at(row++));
  });
  return results;
}

} // namespace

std::vector<std::vector<double>> tokenScores(const Ensemble &models, const std::vector<std::vector<int32_t>> &sources,
                                             const std::vector<std::vector<int32_t>> &targets, int64_t batchTokens,
                                             const std::function<void()> &beforePass) {
  std::vector<std::vector<std::vector<double>>> ofMembers;
  for (Engine *engine : models.members())
    ofMembers.push_back(scoresOf(*engine, sources, targets, batchTokens, beforePass));
  std::vector<std::vector<double>> results = std::move(ofMembers.front());
  if (ofMembers.size() == 1)
    return results;
  std::vector<double> numbers(ofMembers.size());
  for (size_t pair = 0; pair < results.size(); ++pair)
    for (size_t token = 0; token < results[pair].size(); ++token) {
      numbers[0] = results[pair][token];
      for (size_t m = 1; m < ofMembers.size(); ++m)
        numbers[m] = ofMembers[m][pair][token];
      results[pair][token] = logMean(numbers, models.weights());
    }
  return results;
}

std::vector<double> score(const Ensemble &models, const std::vector<std::vector<int32_t>> &sources,
                          const std::vector<std::vector<int32_t>> &targets, int64_t batchTokens) {
  std::vector<double> sums;
  for (const std::vector<double> &tokens : tokenScores(models, sources, targets, batchTokens))
    sums.push_back(std::accumulate(tokens.begin(), tokens.end(), 0.0));
  return sums;
}

} // namespace xfc
