// One training step: the loss and gradients of one or several batches, then the optimizer.
#include "Update.h"
#include <algorithm>
#include <cmath>

namespace xfc {

void PairBatch::assign(const Corpus &corpus, std::span<const int64_t> pairs, const Module &module, bool training) {
  sources.clear();
  targets.clear();
  labels.clear();
  for (int64_t pair : pairs) {
    uint32_t sentence = static_cast<uint32_t>(pair);
    sources.push_back({corpus.source(pair), corpus.sourceLength(pair), sentence});
    targets.push_back({corpus.target(pair), corpus.targetLength(pair), sentence});
    std::span<const int32_t> says = corpus.labels(pair);
    labels.insert(labels.end(), says.begin(), says.end());
  }
  // A label of -1 counts nowhere.
  std::replace(labels.begin(), labels.end(), module.pad, -1);
  counted = static_cast<int64_t>(labels.size()) - std::count(labels.begin(), labels.end(), -1);
  batch.assign(sources, targets, module.pad, training);
  batch.shape().training = training;
}

Scalars::Scalars(const Module &module, std::initializer_list<double> values) : isDouble(module.type == DType::F64) {
  std::copy(values.begin(), values.end(), doubles);
  std::copy(values.begin(), values.end(), floats);
}

double sumOfRows(const View &view, int64_t rows) {
  double sum = 0;
  for (int64_t i = 0; i < rows; ++i)
    sum += view.at(i);
  return sum;
}

Update::Update(Engine &engine) : engine(engine) {
  if (!engine.has("loss_and_gradients") || !engine.has("update"))
    throw Error("model '" + engine.module().model + "' cannot be trained: that takes a decoder with a head, and an executable compiled with --mode train");
}

// Keeps a running sum of the gradients of the batches of a step, in their order, on the device; in the end it is the gradients.
void Update::addGradients(const xfc_shape &shape, bool first, bool last) {
  const Module &module = engine.module();
  const int64_t element = bytesOf(module.type);
  auto *sum = static_cast<char *>(engine.rows("sums of gradients", module.parameterElements * element));
  if (!first) {
    if (sums.empty())
      for (const Argument &argument : module.find("accumulate")->arguments)
        for (const Parameter &parameter : module.parameters)
          if (argument.name == "sum." + parameter.name)
            sums.push_back({argument.name, sum + parameter.offset * element, 0, true});
    engine.run("accumulate", shape, sums);
  }
  if (!last)
    engine.copyGradients(sum);
}

void Update::Inputs::assign(const Corpus &corpus, std::span<const std::vector<int64_t>> of, const Module &module) {
  count = of.size();
  batches.resize(std::max(batches.size(), count));
  pairs.resize(batches.size());
  for (size_t i = 0; i < count; ++i) {
    batches[i].assign(corpus, of[i], module, true);
    pairs[i].assign(of[i].begin(), of[i].end());
  }
}

bool Update::Inputs::are(std::span<const std::vector<int64_t>> of) const { return std::equal(pairs.begin(), pairs.begin() + count, of.begin(), of.end()); }

UpdateResult Update::run(const Corpus &corpus, std::span<const std::vector<int64_t>> batches, int64_t step, const UpdateOptions &options,
                         std::span<const std::vector<int64_t>> next) {
  const Module &module = engine.module();
  UpdateResult result;
  if (upcoming.count > 0 && upcoming.are(batches))
    std::swap(inputs, upcoming);
  else
    inputs.assign(corpus, batches, module);
  upcoming.count = 0;
  for (size_t i = 0; i < batches.size(); ++i)
    result.labels += inputs.batches[i].labelCount();
  Scalars smoothing(module, {options.smoothing}), lossScale(module, {1.0 / std::max<int64_t>(result.labels, 1)});
  for (size_t i = 0; i < batches.size(); ++i) {
    xfc_shape &shape = inputs.batches[i].shape();
    shape.dropout_key[0] = static_cast<uint32_t>(options.seed) ^ static_cast<uint32_t>(options.seed >> 32) * 0x9E3779B9u;
    shape.dropout_key[1] = static_cast<uint32_t>(step);
    engine.run("loss_and_gradients", shape,
               inputs.batches[i].bindings(Binding{"smoothing", smoothing.data()}, Binding{"loss_scale", lossScale.data()}));
    if (i + 1 == batches.size() && !next.empty())
      upcoming.assign(corpus, next, module);
    int64_t rows = shape.sets[XFC_TARGET].rows;
    result.loss += sumOfRows(engine.output("loss_and_gradients", "loss"), rows);
    result.nll += sumOfRows(engine.output("loss_and_gradients", "nll"), rows);
    if (batches.size() > 1)
      addGradients(shape, i == 0, i + 1 == batches.size());
  }
  double t = static_cast<double>(step);
  Scalars hyper(module, {options.rate, options.beta1, options.beta2, options.epsilon, options.l2, options.decay,
                         1 - std::pow(options.beta1, t), 1 - std::pow(options.beta2, t)});
  Scalars maxNorm(module, {options.clipNorm});
  const Binding bindings[] = {{"hyper", hyper.data()}, {"max_norm", maxNorm.data()}};
  engine.run("update", inputs.batches[0].shape(), bindings);
  result.norm = engine.output("update", "norm").at(0);
  return result;
}

} // namespace xfc
