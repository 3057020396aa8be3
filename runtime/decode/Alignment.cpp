// Computes cross-attention between a source and a given target, through the program forward_attention.
#include "decode/Alignment.h"
#include "engine/Batch.h"
#include "plan/Programs.h"

namespace xfc {

namespace {

const Output &lastCrossAttention(const Module &module, const std::string &wanted) {
  const Program *program = module.find(programs::forwardAttention);
  const Output *last = nullptr;
  if (program)
    for (const Output &output : program->outputs)
      if (output.keys >= 0 && output.keys / 4 == XFC_TARGET_SOURCE)
        last = &output;
  if (!last)
    throw Error("model '" + module.model + "' has no cross-attention, which " + wanted + " needs");
  return *last;
}

CrossAttention attentionOf(Engine &engine, std::span<const int32_t> source, std::span<const int32_t> target, bool eos) {
  const Module &module = engine.module();
  const Output *last = &lastCrossAttention(module, "a drawing of it");
  std::vector<int32_t> input = {module.start}; // what is read to predict each token
  input.insert(input.end(), target.begin(), target.end());
  if (!eos) // a translation of the most tokens has no place for it
    input.pop_back();
  if (input.empty())
    return {0, static_cast<int64_t>(source.size()), {}};
  const Sequence sourceSequence{source, static_cast<int64_t>(source.size()), 0};
  const Sequence targetSequence{input, static_cast<int64_t>(input.size()), 0};
  Batch batch;
  batch.assign({&sourceSequence, 1}, {&targetSequence, 1}, module.pad, false);
  const Binding bindings[] = {{names::source, batch.ids(XFC_SOURCE).data()},
                              {names::target, batch.ids(XFC_TARGET).data()}};
  engine.run(programs::forwardAttention, batch.shape(), bindings);

  // For a single sequence, each head has one dense block of targets x keys.
  View view = engine.output(programs::forwardAttention, last->name);
  const xfc_keys &keys = batch.shape().keys[last->keys];
  int64_t heads = last->shape.front(), count = keys.count[0];
  CrossAttention result{static_cast<int64_t>(input.size()), static_cast<int64_t>(source.size()), {}};
  result.weights.assign(result.targets * result.sources, 0);
  auto probability = [&](int64_t i) {
    return last->type == DType::F64 ? static_cast<const double *>(view.data)[i]
                                    : static_cast<const float *>(view.data)[i];
  };
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t target = 0; target < result.targets; ++target)
      for (int64_t key = 0; key < count; ++key)
        result.weights[target * result.sources + keys.keys[keys.begin[0] + key]] +=
            probability((head * result.targets + target) * count + key) / static_cast<double>(heads);
  return result;
}

} // namespace

void requireCrossAttention(const Ensemble &models, const std::string &wanted) {
  for (const Engine *engine : models.members())
    lastCrossAttention(engine->module(), wanted);
}

CrossAttention crossAttention(const Ensemble &models, std::span<const int32_t> source, std::span<const int32_t> target,
                              bool eos) {
  const std::span<Engine *const> members = models.members();
  CrossAttention result = attentionOf(*members.front(), source, target, eos);
  if (members.size() == 1)
    return result;
  std::vector<CrossAttention> others;
  for (Engine *engine : members.subspan(1))
    others.push_back(attentionOf(*engine, source, target, eos));
  std::vector<double> numbers(members.size());
  for (size_t i = 0; i < result.weights.size(); ++i) {
    numbers[0] = result.weights[i];
    for (size_t m = 1; m < members.size(); ++m)
      numbers[m] = others[m - 1].weights[i];
    result.weights[i] = mean(numbers, models.weights());
  }
  return result;
}

HardAlignment hardAlignment(const CrossAttention &attention, int64_t targets, int64_t sources, int64_t first) {
  HardAlignment pairs;
  for (int64_t target = 0; target < targets && sources > 0; ++target) {
    int64_t best = 0;
    for (int64_t source = 1; source < sources; ++source)
      if (attention.at(target, first + source) > attention.at(target, first + best))
        best = source;
    pairs.push_back({best, target});
  }
  return pairs;
}

} // namespace xfc
