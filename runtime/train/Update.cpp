// Runs one training step: the loss and gradients of one or several batches, then the optimizer.
#include "train/Update.h"
#include "corpora/WordAlignment.h"
#include "plan/Programs.h"
#include "plan/SplitUpdate.h"
#include "train/DeviceSum.h"
#include "train/GradientSum.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace xfc {

void PairBatch::assign(const Corpus &corpus, std::span<const int64_t> pairs, const Module &module, bool training,
                       const LossShares &shares) {
  lists.clear(module);
  alignment.clear(module);
  sources.clear();
  targets.clear();
  labels.clear();
  weights.clear();
  isDouble = module.type == DType::F64;
  for (int64_t pair : pairs) {
    uint32_t sentence = static_cast<uint32_t>(corpus.number(pair));
    sources.push_back({corpus.source(pair), corpus.sourceLength(pair), sentence});
    targets.push_back({corpus.target(pair), corpus.targetLength(pair), sentence});
    std::span<const int32_t> says = corpus.labels(pair);
    labels.insert(labels.end(), says.begin(), says.end());
    const Distribution taught = shares.distillation > 0 ? corpus.distributions(pair) : Distribution();
    for (size_t i = 0, tokens = taught.size() / says.size(); training && i < says.size(); ++i)
      lists.add(says[i] == module.pad ? -1 : says[i], shares, taught.subspan(i * tokens, tokens));
    if (training)
      alignment.add(says.size(), shares.alignment, corpus.links(pair));
    const Weights given = corpus.weights(pair);
    if (given.size() > 1)
      weights.insert(weights.end(), given.begin(), given.end());
    else
      weights.resize(labels.size(), given.empty() ? 1 : given[0]);
  }
  // Programs ignore labels of -1.
  std::replace(labels.begin(), labels.end(), module.pad, -1);
  counted = static_cast<int64_t>(labels.size()) - std::count(labels.begin(), labels.end(), -1);
  batch.assign(sources, targets, module.pad, training);
  batch.shape().training = training;
}

void PairBatch::scaleLosses(double scale) {
  const auto fill = [&]<typename Number>(std::vector<Number> &scales) {
    scales.resize(weights.size());
    std::ranges::transform(weights, scales.begin(),
                           [&](float weight) { return static_cast<Number>(scale * static_cast<double>(weight)); });
  };
  if (isDouble)
    fill(doubleScales);
  else
    fill(floatScales);
}

double PairBatch::weightedSum(const View &view) const {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i)
    sum += static_cast<double>(weights[i]) * view.at(static_cast<int64_t>(i));
  return sum;
}

Scalars::Scalars(const Module &module, std::span<const double> values) : isDouble(module.type == DType::F64) {
  std::copy(values.begin(), values.end(), doubles);
  std::copy(values.begin(), values.end(), floats);
}

double sumOfRows(const View &view, int64_t rows) {
  double sum = 0;
  for (int64_t i = 0; i < rows; ++i)
    sum += view.at(i);
  return sum;
}

// The number of labels of a batch that are not pad.
static int64_t labelCount(const PairsOfCorpus &batch, const Module &module) {
  int64_t count = 0;
  for (int64_t pair : batch.pairs) {
    const std::span<const int32_t> labels = batch.corpus->labels(pair);
    count += static_cast<int64_t>(labels.size()) - std::count(labels.begin(), labels.end(), module.pad);
  }
  return count;
}

struct Update::Share : StepObserver {
  Share(SumOfRanks &sum, const ShareOfUpdate &of) : sum(sum), clips{of.clips}, parts(of.parts), squares(of.squares) {}
  void before(const ProgramRun &run, int64_t step) override {
    if (step == clips[0])
      sum.gatherParts(run.address(squares), parts);
  }
  std::span<const int64_t> stops() const override { return clips; }
  SumOfRanks &sum;
  const std::array<int64_t, 1> clips;
  int64_t parts;
  Place squares;
};

// What a guarded step of an optimizer throws if it is not taken.
struct NotTaken {
  double norm;
};

// Observes an optimizer's program. Ends it once the norm is known, if that is not finite: no parameter or state has
// been updated by then. `share` observes first, if there is one.
struct Update::Guard : StepObserver {
  Guard(const Module &module, const Program &program, Share *share) : module(module), share(share) {
    const auto output = std::ranges::find(program.outputs, names::norm, &Output::name);
    const auto computes = std::ranges::find_if(program.steps, [&](const Step &step) {
      return std::ranges::any_of(step.results, [&](const LaunchResult &result) {
        const Place &place = step.buffers[static_cast<size_t>(result.buffer)];
        return place.kind == output->place.kind && place.index == output->place.index &&
               place.offset == output->place.offset;
      });
    });
    norm = &*output;
    known = computes - program.steps.begin() + 1;
    // An optimizer whose first steps change a state is not guarded.
    if (std::any_of(program.steps.begin(), program.steps.begin() + std::min<int64_t>(known, program.steps.size()),
                    [](const Step &step) {
                      return std::ranges::find(step.buffers, Place::Kind::State, &Place::kind) != step.buffers.end();
                    }))
      known = -1;
  }
  void before(const ProgramRun &run, int64_t step) override {
    if (share)
      share->before(run, step);
    if (step != known)
      return;
    const void *const at = run.address(norm->place);
    const double value = module.type == DType::F64 ? *static_cast<const double *>(at) : *static_cast<const float *>(at);
    if (!std::isfinite(value))
      throw NotTaken{value};
  }

  const Module &module;
  Share *share;
  const Output *norm;
  int64_t known; // the first step after the norm
};

Update::~Update() = default;

Update::Update(Engine &engine, Ranks *ranks) : engine(engine), ranks(ranks), groups(engine.module()) {
  if (!engine.has(programs::lossAndGradients) || !engine.has(programs::update))
    throw Error("model '" + engine.module().model +
                "' cannot be trained: that needs a decoder with a head, and an executable compiled with --mode train");
  if (rankCount() > 1) {
    sharding.emplace(engine.module(), rankCount());
    if (engine.device().traits().hostMemory)
      sumOfRanks = std::make_unique<GradientSum>(*ranks, engine.pool(), engine.module(), *sharding);
    else
      sumOfRanks = std::make_unique<DeviceSum>(*ranks, engine, *sharding);
  }
}

void Update::join() {
  if (auto *sum = dynamic_cast<DeviceSum *>(sumOfRanks.get()))
    sum->join();
}

void Update::trainInGroups(TrainedGroups trained, const Optimizer &optimizer) {
  const Module &module = engine.module();
  groups = std::move(trained);
  engine.replace(
      inGroups(module, *module.find(optimizer.program), groups.groupOf, static_cast<int>(groups.groups.size())));
}

void Update::shareStates(const Optimizer &optimizer) {
  const Module &module = engine.module();
  const Program &program = *module.find(optimizer.program);
  if (!sumOfRanks || !optimizer.elementwise || !canShare(module, program))
    return;
  const std::vector<Range> &owned = sharding->rangesOf(ranks->rank());
  ShareOfUpdate own = inShare(module, program, owned);
  share = std::make_unique<Share>(*sumOfRanks, own);
  engine.keepStatesOf(owned);
  engine.replace(std::move(own.program));
}

int64_t Update::bytesOfSum() const { return sumOfRanks ? sumOfRanks->bytes() : 0; }

void Update::gatherGradients() {
  if (share)
    gather(engine.gradients());
}

void Update::gather(void *block) {
  const Module &module = engine.module();
  gatherOnHosts(*ranks, *sharding, {block, bytesOf(module.type), 1, module.parameterElements});
}

// The value of the optimizer program's argument `hyper`.
void *Update::hyperOf(const UpdateOptions &options, int64_t step) {
  hyper.clear();
  for (size_t group = 0; group < groups.groups.size(); ++group) {
    const OptimizerSettings settings = groups.settingsOf(group, options.settings);
    for (const Optimizer::Hyperparameter &one : options.optimizer->hyper)
      hyper.push_back(one.value(settings, static_cast<double>(step)));
  }
  if (engine.module().type == DType::F64)
    return hyper.data();
  hyperSingle.assign(hyper.begin(), hyper.end());
  return hyperSingle.data();
}

// Keeps a running sum of the gradients of a step's batches, in order, on the device; after the last batch the gradients
// hold the sum.
void Update::addGradients(const xfc_shape &shape, bool first, bool last) {
  const Module &module = engine.module();
  const int64_t element = bytesOf(module.type);
  auto *sum = static_cast<char *>(engine.rows("sums of gradients", module.parameterElements * element));
  if (!first) {
    if (sums.empty())
      for (const Argument &argument : module.find(programs::accumulate)->arguments)
        for (const Parameter &parameter : module.parameters)
          if (argument.name == names::sumOf + parameter.name)
            sums.push_back({argument.name, sum + parameter.offset * element, 0, true});
    engine.run(programs::accumulate, shape, sums);
  }
  if (!last)
    engine.copyGradients(sum);
}

void Update::Inputs::assign(std::span<const PairsOfCorpus> of, int64_t ofStep, const UpdateOptions &options,
                            const Module &module, const Ranks *ranks) {
  rank = ranks ? ranks->rank() : 0;
  rankCount = ranks ? ranks->size() : 1;
  total = of.size();
  count = total / rankCount + (rank < total % rankCount);
  prepared = 0;
  step = ofStep;
  seed = options.seed;
  shares = {options.smoothing, options.distillation, options.alignment};
  smoothing = Scalars(module, {options.smoothing});
  labels = 0;
  pairs.resize(std::max(pairs.size(), total));
  for (size_t i = 0; i < total; ++i) {
    pairs[i] = of[i];
    labels += labelCount(of[i], module);
  }
}

void Update::Inputs::prepare(size_t number, const Module &module) {
  const PairsOfCorpus &of = pairs[number * rankCount + rank];
  PairBatch &batch = slot(number).batch;
  batch.assign(*of.corpus, of.pairs, module, true, shares);
  xfc_shape &shape = batch.shape();
  shape.dropout_key[0] = static_cast<uint32_t>(seed) ^ static_cast<uint32_t>(seed >> 32) * 0x9E3779B9u;
  shape.dropout_key[1] = static_cast<uint32_t>(step);
  batch.scaleLosses(1.0 / static_cast<double>(std::max<int64_t>(labels, 1)));
}

bool Update::Inputs::are(std::span<const PairsOfCorpus> of, int64_t ofStep, const UpdateOptions &options) const {
  return total > 0 && step == ofStep && seed == options.seed &&
         shares == LossShares{options.smoothing, options.distillation, options.alignment} &&
         std::equal(pairs.begin(), pairs.begin() + total, of.begin(), of.end());
}

void Update::prepare(Inputs &inputs, std::span<const PairsOfCorpus> batches, int64_t step,
                     const UpdateOptions &options) {
  const Span span(engine.trace(), "data", "prepare batches of step", step);
  inputs.assign(batches, step, options, engine.module(), ranks);
  for (; inputs.prepared < std::min(inputs.count, inputs.slots.size()); ++inputs.prepared)
    inputs.prepare(inputs.prepared, engine.module());
}

// Prepares the next batch of the present step in the slot of one whose results are read now. On a device, that one was
// run a few batches before the last.
void Update::prepareNext() {
  Inputs &now = inputs[present];
  collectLosses(now.prepared + 1 - now.slots.size());
  const Span span(engine.trace(), "data", "prepare batch of step", now.step);
  now.prepare(now.prepared++, engine.module());
}

// Reads the results of the batches before `end`, those of this rank, that were not read before.
void Update::collectLosses(size_t end) {
  Inputs &now = inputs[present];
  for (size_t i = lossSums.size() / 3; i < end; ++i) {
    const Slot &slot = now.slot(i);
    lossSums.push_back(slot.batch.weightedSum(slot.loss->view()));
    lossSums.push_back(sumOfRows(slot.nll->view(), slot.batch.shape().sets[XFC_TARGET].rows));
    lossSums.push_back(slot.alignment ? slot.batch.weightedSum(slot.alignment->view()) : 0);
  }
}

// Begins a round of batches: one batch per rank, until none are left.
void Update::beginRound(size_t round, size_t total) {
  const size_t ranksInRound = std::min<size_t>(rankCount(), total - round * rankCount());
  sumOfRanks->begin(static_cast<int>(ranksInRound), round == 0);
}

// Adds in the order of the batches, independently of their ranks.
void Update::addLosses(UpdateResult &result) {
  const Span span(engine.trace(), "result", "add losses");
  const Inputs &now = inputs[present];
  collectLosses(now.count);
  if (sumOfRanks)
    lossSums = ranks->gatherInTurn(lossSums, 3, now.total);
  for (size_t i = 0; i < now.total; ++i) {
    result.loss += lossSums[3 * i];
    result.nll += lossSums[3 * i + 1];
    result.alignment += lossSums[3 * i + 2];
  }
}

UpdateResult Update::run(std::span<const PairsOfCorpus> batches, int64_t step, const UpdateOptions &options,
                         std::span<const PairsOfCorpus> next) {
  const Module &module = engine.module();
  if (inputs[present ^ 1].are(batches, step, options))
    present ^= 1;
  else
    prepare(inputs[present], batches, step, options);
  Inputs &now = inputs[present], &upcoming = inputs[present ^ 1];
  upcoming.total = 0;
  lossSums.clear();
  for (size_t i = 0; i < now.count; ++i) {
    Slot &slot = now.slot(i);
    if (sumOfRanks)
      beginRound(i, now.total);
    engine.run(programs::lossAndGradients, slot.batch.shape(), now.bindings(i), sumOfRanks.get());
    engine.fetch(programs::lossAndGradients, names::loss, slot.loss);
    engine.fetch(programs::lossAndGradients, names::nll, slot.nll);
    if (linksPerLabel(module) > 0)
      engine.fetch(programs::lossAndGradients, names::alignment, slot.alignment);
    if (i + 1 < now.count)
      engine.stage(programs::lossAndGradients, now.slot(i + 1).batch.shape(), now.bindings(i + 1));
    if (now.count > 1 && !sumOfRanks)
      addGradients(slot.batch.shape(), i == 0, i + 1 == now.count);
    if (sumOfRanks)
      sumOfRanks->end(engine.gradientsOnDevice());
    // The batches of all other slots are still to be run, or were run lately.
    if (i + 2 >= now.slots.size() && now.prepared < now.count)
      prepareNext();
  }
  if (sumOfRanks) {
    const Span span(engine.trace(), "ranks", "add gradients");
    if (now.count * rankCount() < now.total) { // this rank has no batch in the last round
      beginRound(now.count, now.total);
      sumOfRanks->end(engine.gradientsOnDevice());
    }
    sumOfRanks->finish(engine.gradientsOnDevice());
    if (!share)
      sumOfRanks->gather(engine.gradientsOnDevice());
  }
  if (groups.frozen > 0)
    for (size_t i = 0; i < module.parameters.size(); ++i)
      if (groups.groupOf[i] == frozenGroup)
        engine.clearGradients(module.parameters[i].offset, elementsOf(module.parameters[i].shape));
  UpdateResult result;
  result.labels = now.labels;
  const bool guarded = engine.device().traits().hostThreads;
  if (guarded) { // results are read without waiting
    addLosses(result);
    result.taken = std::isfinite(result.loss);
    if (!result.taken)
      return result;
  }
  Scalars maxNorm(module, {options.clipNorm});
  const Binding bindings[] = {{names::hyper, hyperOf(options, step)}, {names::maxNorm, maxNorm.data()}};
  const std::string_view program = options.optimizer->program;
  if (guarded) {
    Guard guard(module, *module.find(program), share.get());
    try {
      engine.run(program, now.slots[0].batch.shape(), bindings, &guard);
    } catch (const NotTaken &because) {
      result.norm = because.norm;
      result.taken = false;
      return result;
    }
  } else {
    engine.run(program, now.slots[0].batch.shape(), bindings, share.get());
  }
  if (share) { // what this rank did not update is packed again when it is next read
    const Span span(engine.trace(), "ranks", "gather parameters");
    sumOfRanks->gather(engine.parametersOnDevice());
  }
  engine.fetch(options.optimizer->program, names::norm, norm);
  if (!next.empty()) {
    prepare(upcoming, next, step + 1, options);
    if (upcoming.count > 0)
      engine.stage(programs::lossAndGradients, upcoming.slots[0].batch.shape(), upcoming.bindings(0));
  }
  if (!guarded)
    addLosses(result);
  result.norm = norm->view().at(0);
  return result;
}

std::optional<Update::NotFinite> Update::firstNotFinite() {
  if (!engine.device().traits().hostThreads)
    return std::nullopt;
  Inputs &now = inputs[present];
  for (size_t i = 0; i < now.count; ++i) {
    FiniteCheck check(engine.module());
    now.prepare(i, engine.module());
    engine.run(programs::lossAndGradients, now.slot(i).batch.shape(), now.bindings(i), &check);
    check.end();
    const size_t rank = ranks ? static_cast<size_t>(ranks->rank()) : 0;
    if (check.found())
      return NotFinite{*check.found(), static_cast<int64_t>(i * static_cast<size_t>(rankCount()) + rank)};
  }
  return std::nullopt;
}

} // namespace xfc
