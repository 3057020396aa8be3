// Trains a model on parallel text, into a folder: makes the parts of a run, each from those before it, and runs them.
#include "train/run/Trainer.h"
#include "support/Files.h"
#include "support/Json.h"
#include "support/Quoted.h"
#include "support/Terminal.h"
#include "train/run/MemoryNeeds.h"
#include "train/run/TrainingLoop.h"
#include <cstdlib>
#include <memory>
#include <optional>

namespace xfc {

// Checks where a run writes besides its folder.
static void announceOutputs(const TrainOptions &options, const RunFolder &folder) {
  isUpdated(options.out);
  isUpdated(options.logFile());
  const std::string &trace = options.trace.file;
  for (const auto &[option, file] : {std::pair{"--trace", trace}, {"--log", options.log}})
    if (!file.empty() && folder.keeps(file))
      throw Error(std::string(option) + ": " + file +
                  ": the run keeps a file of its own under this name; name another file");
  if (trace.empty())
    return;
  if (canonicalPath(trace) == canonicalPath(options.logFile()))
    throw Error("--trace: " + trace + ": is the log of the run; name another file");
  announceOutput(trace);
}

// Takes the folder, if it is there, before anything is read or computed.
static void claim(RunFolder &folder, const TrainOptions &options) {
  if (exists(options.out) && !folder.isFolder())
    throw Error(options.out + ": is a file; --out is a folder to train into");
  if (folder.isFolder())
    folder.lock();
  folder.checkFor(options.resume);
}

static RunFacts factsOf(const TrainOptions &options, const TrainingData &data, const HeldOut &heldOut,
                        int64_t batchTokens, int64_t batchesOfStep) {
  return {.seed = options.seed,
          .data = data.corpus().totals().hash,
          .batchTokens = batchTokens,
          .accumulate = batchesOfStep,
          .metric = options.validation.best,
          .groups = options.groups.text(),
          .mixture = data.mixtureText(),
          .sampling = data.samplingText(),
          .validation = heldOut.hash()};
}

// The flags that a resumed run uses, on any machine: the batches that were chosen, in place of the limit of memory.
static std::string withBatchTokens(const std::string &configuration, int64_t batchTokens) {
  nlohmann::ordered_json used = parseOrderedJson(configuration, "config.json");
  used.erase("memory");
  used["batch-tokens"] = batchTokens;
  return used.dump(2) + "\n";
}

static void trainTogether(const TrainOptions &options, std::string configuration, Ranks &ranks) {
  RunFolder folder(options.out);
  ProgressBar bar(options.quiet || !ranks.isFirst());
  announceOutputs(options, folder);
  const Agreement agreement(ranks);
  agreement.onCall(options, configuration);

  std::optional<TrainedModel> model;
  ranks.together([&] {
    if (ranks.isFirst())
      claim(folder, options);
    model.emplace(options, ranks);
  });
  const DataFiles files = makeDataFiles(options, configuration, *model, folder, bar, ranks);
  std::optional<TrainingData> data;
  std::optional<HeldOut> heldOut;
  std::optional<MemoryNeeds> memory;
  int64_t batchTokens = options.batches.tokens;
  ranks.together([&] {
    data.emplace(options, files, *model, bar);
    heldOut.emplace(options, *model, ranks);
    data->describe();
    heldOut->checkFor(options.validation.best);
    memory.emplace(options, ranks.size(), *model, *data, *heldOut);
    if (options.batches.memory > 0)
      batchTokens = memory->largestBatchTokens();
  });
  // Ranks may have different thread counts, but all must use the same batches: take the minimum.
  if (options.batches.memory > 0)
    batchTokens = -ranks.largest(static_cast<int>(-batchTokens));

  const int64_t batchesOfStep = options.batches.accumulate * ranks.size();
  Records records(bar, data->isGuided());
  Keeper keeper(options.saves, folder, *model, records, ranks);
  std::optional<StepBatches> batches;
  std::optional<RunState> state;
  std::optional<TrainingLoop> loop;
  ranks.together([&] {
    batches.emplace(*data, batchTokens, batchesOfStep, options.seed, options.length, model->engine());
    if (!options.resume) // reads its first pairs now: files that are damaged are refused before anything is written
      batches->seek({});
    state.emplace(options, folder, *model, *batches, records, keeper, bar);
    loop.emplace(options,
                 TrainingLoop::Parts{*model, *batches, *heldOut, records, keeper, *state, agreement, bar, ranks});
    memory->reserve(batchTokens, bar);
    if (options.batches.memory > 0)
      configuration = withBatchTokens(configuration, batchTokens);
  });
  agreement.onData(model->translation, *data, *heldOut);
  if (ranks.size() > 1 && !options.resume) // before any file is written; a resumed run first finds its position
    agreement.onDraws(*batches, {});
  model->update.join();

  loop->begin(factsOf(options, *data, *heldOut, batchTokens, batchesOfStep), configuration);
  loop->run();
}

void train(const TrainOptions &options, const std::string &configuration) {
  const std::unique_ptr<Ranks> ranks = joinRanks(options.mpi);
  try {
    trainTogether(options, configuration, *ranks);
  } catch (const CommonError &error) {
    if (ranks->size() == 1)
      throw;
    // The launcher kills the other ranks as soon as one exits with an error: exit only after the first rank has printed
    // the message for all.
    if (ranks->isFirst())
      printMessage(MessageKind::Error, oneLine(error.what()).c_str());
    ranks->largest(0);
    ranks->leave();
    std::_Exit(1);
  } catch (const std::exception &error) {
    if (ranks->size() == 1)
      throw;
    // The other ranks wait for this one, and would wait forever.
    printMessage(MessageKind::Error, (ranks->nameOf(ranks->rank()) + ": " + oneLine(error.what())).c_str());
    ranks->abort();
  }
}

} // namespace xfc
