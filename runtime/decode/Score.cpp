// Log-probabilities of given target sentences, through the program score.
#include "decode/Score.h"
#include "engine/Batch.h"
#include "plan/Programs.h"
#include <algorithm>
#include <numeric>

namespace xfc {

std::vector<double> score(Engine &engine, const std::vector<std::vector<int32_t>> &sources,
                          const std::vector<std::vector<int32_t>> &targets, int64_t batchTokens) {
  const Module &module = engine.module();
  if (!engine.has(programs::score))
    throw Error("model '" + module.model + "' has no program 'score': it needs a decoder and a head");
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return targets[a].size() > targets[b].size(); });

  std::vector<double> results(sources.size(), 0);
  Batch batch;
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    int64_t sourceTokens = 0, targetTokens = 0;
    for (; end < order.size(); ++end) {
      sourceTokens += static_cast<int64_t>(sources[order[end]].size());
      targetTokens += static_cast<int64_t>(targets[order[end]].size()) + 1;
      if (end > begin && std::max(sourceTokens, targetTokens) > batchTokens)
        break;
    }
    std::vector<std::vector<int32_t>> inputs; // what the decoder reads: start, then the target
    std::vector<int32_t> labels;              // what it should predict: the target, then eos
    for (size_t i = begin; i < end; ++i) {
      const std::vector<int32_t> &target = targets[order[i]];
      inputs.push_back({module.start});
      inputs.back().insert(inputs.back().end(), target.begin(), target.end());
      labels.insert(labels.end(), target.begin(), target.end());
      labels.push_back(module.eos);
    }
    std::vector<Sequence> sourceSequences, targetSequences;
    for (size_t i = begin; i < end; ++i) {
      const std::vector<int32_t> &source = sources[order[i]], &input = inputs[i - begin];
      sourceSequences.push_back({source, static_cast<int64_t>(source.size()), 0});
      targetSequences.push_back({input, static_cast<int64_t>(input.size()), 0});
    }
    batch.assign(sourceSequences, targetSequences, module.pad, false);
    double smoothing = 0; // all bits 0, whatever the element type
    const Binding bindings[] = {{names::source, batch.ids(XFC_SOURCE).data()},
                                {names::target, batch.ids(XFC_TARGET).data()},
                                {names::labels, labels.data()},
                                {names::smoothing, &smoothing}};
    engine.run(programs::score, batch.shape(), bindings);
    View nll = engine.output(programs::score, names::nll);
    int64_t row = 0;
    for (size_t i = begin; i < end; ++i)
      for (size_t token = 0; token < inputs[i - begin].size(); ++token)
        results[order[i]] -= nll.at(row++);
  }
  return results;
}

} // namespace xfc
