// Where a run stands in its folder: begun there, resumed from there, or gone back to.
#include "train/run/RunState.h"
#include "engine/Safetensors.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/Format.h"
#include "support/Terminal.h"
#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

namespace xfc {

// A readable list of many names: those that differ only in numbers are grouped.
static std::string listOf(const std::vector<std::string> &names) {
  std::vector<std::pair<std::string, int>> kinds; // and their counts
  for (const std::string &name : names) {
    std::string kind;
    for (char c : name)
      if (c < '0' || c > '9')
        kind += c;
      else if (!kind.ends_with('*'))
        kind += '*';
    const auto known = std::ranges::find(kinds, kind, &std::pair<std::string, int>::first);
    if (known == kinds.end())
      kinds.emplace_back(kind, 1);
    else
      ++known->second;
  }
  std::string text;
  for (const auto &[kind, count] : kinds)
    text += (text.empty() ? "" : ", ") + kind + (count > 1 ? " (" + std::to_string(count) + ")" : "");
  return text;
}

Progress RunState::begin(const RunFacts &facts, const std::string &configuration) {
  folder.identity = identityOf(model.translation);
  folder.optimizer = options.update.optimizer;
  if (!options.resume || !folder.hasState()) { // before any file is created: invalid weights leave no folder behind
    initializeParameters(model.engine(), options.seed);
    if (!options.init.empty())
      initialize();
  }
  makeFolder(options.out);
  if (!folder.locked()) { // another run may have created it meanwhile
    folder.lock();
    folder.checkFor(options.resume);
  }
  if (!options.trace.file.empty())
    checkWritable(options.trace.file);
  if (options.resume)
    folder.removePartial();
  const bool hadState = options.resume && folder.hasState();
  Progress progress;
  if (hadState)
    progress = resume(facts);
  openLog(progress, hadState);
  if (!options.trace.file.empty() && options.trace.first <= progress.step)
    throw Error(format("--trace-steps %lld:%lld: the run continues after step %lld; give later steps",
                       static_cast<long long>(options.trace.first), static_cast<long long>(options.trace.last),
                       static_cast<long long>(progress.step)));
  const uint64_t before = progress.facts.validation;
  progress.facts = facts;
  if (facts.validation == 0) // a part of the run without held-out text
    progress.facts.validation = before;
  if (options.saves.tensorBoard)
    records.openEvents(folder.file(eventsFile), progress.step);

  const TranslationModel &translation = model.translation;
  writeFile(folder.file("config.json"), configuration);
  if (!translation.source->bytes().empty())
    writeFile(folder.file(folderVocabulary), translation.source->bytes());
  if (translation.target != translation.source && !translation.target->bytes().empty())
    writeFile(folder.file(folderTargetVocabulary), translation.target->bytes());
  return progress;
}

void RunState::openLog(const Progress &progress, bool hadState) {
  if (hadState)
    return records.resume(options.logFile(), progress.step, progress.records);
  if (!options.resume)
    return records.begin(options.logFile());
  bar.say(options.out + ": nothing was saved yet; the run begins at its first step");
  records.resume(options.logFile(), 0, 0);
}

// Replaces random weights by those of --init, by name, as far as they fit.
void RunState::initialize() {
  ModelOptions of;
  of.model = options.init;
  const std::string file = RunFolder(options.init).isFolder() ? modelFiles(of).weights : options.init;
  const FittingWeights weights = loadFitting(model.engine(), file);
  bar.say(format("%s: loaded %zu of %zu parameters: ", file.c_str(), weights.loaded.size(),
                 model.module().parameters.size()) +
          listOf(weights.loaded));
  if (!weights.left.empty())
    bar.say("not in it, and initialized at random: " + listOf(weights.left));
  if (!weights.unused.empty())
    bar.say("in it, but not parameters of this model: " + listOf(weights.unused));
  std::string unfit;
  for (const std::string &one : weights.unfit)
    unfit += (unfit.empty() ? "" : ", ") + one;
  if (!unfit.empty())
    std::fprintf(stderr, "%s: %s: of another shape or type, and initialized at random: %s\n",
                 nameOf(MessageKind::Warning), file.c_str(), unfit.c_str());
  for (const auto &[key, hash] : folder.identity)
    if (const auto theirs = weights.metadata.find(key);
        key.ends_with("_vocabulary") && theirs != weights.metadata.end() && theirs->second != hash)
      std::fprintf(stderr,
                   "%s: %s: was trained with another vocabulary (%s %s, the one given is %s); its embeddings are "
                   "those of other tokens\n",
                   nameOf(MessageKind::Warning), file.c_str(), key.c_str(), theirs->second.c_str(), hash.c_str());
}

Progress RunState::load() {
  std::string said;
  Progress progress = folder.loadState(model.engine(), said);
  if (!said.empty())
    std::fprintf(stderr, "%s\n", said.c_str());
  return progress;
}

Progress RunState::resume(const RunFacts &facts) {
  Progress progress = load();
  requireSame(progress, facts);
  if (progress.position.pool < 0) // see requireSame()
    progress.position.pool = 0;
  if (!batches.seek(progress.position))
    throw Error(options.out + ": the state is at batch " + std::to_string(progress.position.batch) + " of part " +
                std::to_string(progress.position.pool + 1) +
                " of an epoch, which this data does not have; it is damaged; start again in a new --out");
  keeper.resumeFrom(progress);
  bar.say(format("resumed at step %lld", static_cast<long long>(progress.step)));
  return progress;
}

void RunState::requireSame(const Progress &progress, const RunFacts &facts) const {
  auto same = [&](bool holds, const std::string &what) {
    if (!holds)
      throw Error(options.out + ": the run to resume was begun with " + what +
                  "; give the same, or train into a new folder");
  };
  const RunFacts &begun = progress.facts;
  same(begun.data == facts.data, "other training data");
  same(begun.seed == facts.seed, "--seed " + std::to_string(begun.seed));
  same(begun.batchTokens == facts.batchTokens, "--batch-tokens " + std::to_string(begun.batchTokens));
  same(begun.accumulate == facts.accumulate,
       facts.accumulate == options.batches.accumulate // of one process
           ? "--accumulate " + std::to_string(begun.accumulate)
           : std::to_string(begun.accumulate) + " batches per step (--accumulate times the processes)");
  if (progress.position.pool < 0) // a state of an earlier version, which ordered all data at once
    same(batches.poolsOfEpoch() == 1, "an earlier version, which put data of this size in another order");
  same(begun.groups == facts.groups, begun.groups.empty() ? "no --freeze, --rate or --decay" : begun.groups);
  same(begun.mixture == facts.mixture,
       begun.mixture.empty() ? "no --corpus-weight or --corpus-temperature" : begun.mixture);
  same(begun.sampling == facts.sampling, begun.sampling.empty() ? "no --sentencepiece-alphas" : begun.sampling);
  same(begun.metric == facts.metric, "--best " + begun.metric);
  same(facts.validation == 0 || begun.validation == 0 || begun.validation == facts.validation,
       "other held-out text, with which the best validation so far cannot be compared");
}

void RunState::share(Progress &progress, const Agreement &agreement, Ranks &ranks) {
  shareWeights(model.engine(), ranks);
  model.states.beginAverage();
  folder.shareStates(model.states);
  if (ranks.size() > 1)
    progress = progressOf(ranks.broadcast(textOf(progress)));
  keeper.share();
  agreement.onDraws(batches, progress.position);
}

} // namespace xfc
