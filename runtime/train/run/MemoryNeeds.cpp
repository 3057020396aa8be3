// What a training run takes of memory: said before it starts, kept within a limit, and reserved.
#include "train/run/MemoryNeeds.h"
#include "decode/Search.h"
#include "plan/Programs.h"
#include "support/Format.h"
#include <algorithm>
#include <cmath>

namespace xfc {

static std::string megabytes(int64_t bytes) { return format("%.0f MB", static_cast<double>(bytes) / 1e6); }

MemoryNeeds::MemoryNeeds(const TrainOptions &options, int ranks, const TrainedModel &model, const TrainingData &data,
                         const HeldOut &heldOut)
    : options(options), ranks(ranks), model(model), data(data), heldOut(heldOut) {}

std::vector<std::string> MemoryNeeds::programsOfSteps() const {
  std::vector<std::string> programs = {programs::lossAndGradients, options.update.optimizer->program};
  if (options.batches.accumulate > 1 && ranks == 1)
    programs.push_back(programs::accumulate);
  if (heldOut.any())
    programs.push_back(programs::score);
  return programs;
}

// The counts of the largest batch.
Counts MemoryNeeds::countsFor(int64_t tokens) const {
  const Counts counts = largestBatch(data.corpus(), tokens, data.mixture());
  return heldOut.any() ? larger(counts, largestBatch(heldOut.corpus(), tokens)) : counts;
}

// What the lists of the pairs in the batches of two steps take: this one's and the next one's, of which `Update` has
// copies. A batch is full on the longer side at most, so this many pairs are in one on average over an epoch.
int64_t MemoryNeeds::bytesOfLists(int64_t tokens) const {
  const CorpusTotals &totals = data.corpus().totals();
  const int64_t longer = std::max({totals.tokens[XFC_SOURCE], totals.tokens[XFC_TARGET], int64_t(1)});
  const double share = static_cast<double>(tokens) / static_cast<double>(longer),
               pairs = std::min(share, 1.0) * static_cast<double>(totals.pairs);
  constexpr int64_t growth = 2, block = 16; // a vector's spare room, and what an allocation takes besides
  const auto list = static_cast<int64_t>(sizeof(PairsOfCorpus)),
             numbers = static_cast<int64_t>(std::ceil(pairs)) * static_cast<int64_t>(sizeof(int64_t)) + block,
             losses = 3 * static_cast<int64_t>(sizeof(double));
  return product(
      {options.batches.accumulate * ranks, 2 * (growth * list + numbers) + 2 * (list + numbers) + growth * losses});
}

// The bytes of all states of one element.
int64_t MemoryNeeds::bytesOfStates(const Module &module) const {
  int64_t bytes = 0;
  for (std::string_view state : options.update.optimizer->states)
    if (const OptimizerState *kept = module.findState(state))
      bytes += bytesOf(kept->type);
  return bytes;
}

Memory MemoryNeeds::forBatches(int64_t tokens) const {
  Engine &engine = model.engine();
  const Module &module = model.module();
  const int threads = engine.computingThreads();
  Memory memory = predictMemory(module, programsOfSteps(), countsFor(tokens), threads);
  if (const EncodedLines *const translated = heldOut.sources())
    memory = larger(memory, predictMemory(module, {programs::encode, module.stepProgram(1)->name},
                                          searchCounts(module, translated->sources, heldOut.search()), threads,
                                          engine.device().runsPersistent()));
  if (const Sharding *sharing = model.update.sharing()) // whichever rank has the most
    memory.states = sharing->largestShare() * bytesOfStates(module);
  memory.held += model.update.bytesOfSum();
  if (engine.device().traits().hostMemory)
    memory.held += bytesOfLists(tokens);
  return memory;
}

int64_t MemoryNeeds::largestBatchTokens() const {
  constexpr int64_t unit = 16;
  const CorpusTotals totals = data.corpus().bounds();
  // Batches larger than all data need no more memory.
  int64_t fits = 0,
          tooMany =
              std::min(std::max(totals.tokens[XFC_SOURCE], totals.tokens[XFC_TARGET]), int64_t(1) << 24) / unit + 2;
  while (tooMany - fits > 1) {
    const int64_t middle = fits + (tooMany - fits) / 2;
    (forBatches(middle * unit).total() <= options.batches.memory ? fits : tooMany) = middle;
  }
  if (fits == 0)
    throw Error("--memory: training needs " + megabytes(forBatches(unit).total()) +
                " with the smallest batches; give at least that much");
  return fits * unit;
}

void MemoryNeeds::reserve(int64_t batchTokens, ProgressBar &bar) const {
  Engine &engine = model.engine();
  const Module &module = model.module();
  const DeviceTraits &device = engine.device().traits();
  const int threads = engine.computingThreads();
  // Lines of text, batches of pairs, records, and buffers of files take some memory of the host that is not planned.
  const int64_t needed = forBatches(batchTokens).total(), available = engine.device().available(),
                unplanned = device.hostMemory ? int64_t(16) << 20 : 0;
  if (available > 0 && needed + unplanned > available)
    throw Error("training needs " + megabytes(needed + unplanned) + " of memory, but the " + std::string(device.owner) +
                " has " + megabytes(available) +
                " left; use a smaller --batch-tokens (with --accumulate for the same step) or a smaller model");
  for (const std::string &program : programsOfSteps())
    engine.reserve(program, countsFor(batchTokens));
  bar.say(format("model %s: %.2f million parameters; %s of memory; %s", module.model.c_str(),
                 static_cast<double>(module.parameterElements) / 1e6, megabytes(needed).c_str(),
                 (threads > 0 ? std::to_string(threads) + " threads" : engine.device().name()).c_str()));
  if (options.batches.memory > 0)
    bar.say(format("batches of %lld tokens (--batch-tokens)", static_cast<long long>(batchTokens)));
}

} // namespace xfc
