// The corpus of a run, read, checked against what the executable takes, and mixed.
#include "train/run/TrainingData.h"
#include "corpora/WordAlignment.h"
#include "decode/LabelLists.h"
#include "support/Format.h"
#include "train/Prepare.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace xfc {

static Corpus corpusOf(const TrainOptions &options, const DataFiles &files, const TrainedModel &model) {
  const DataOptions &data = options.data;
  const Parallel parallel = onThreadsOf(model.engine());
  if (!files.prepared.empty())
    return {files.prepared, model.vocabularies(), model.module(), data.sampling(options.seed), parallel};
  const std::vector<PairFiles> corpora = data.mixes() ? files.text.each() : std::vector{files.text};
  return {corpora,  model.vocabularies(),       model.module(), data.format, data.filter,
          parallel, data.sampling(options.seed)};
}

TrainingData::TrainingData(const TrainOptions &options, const DataFiles &files, const TrainedModel &model,
                           ProgressBar &bar)
    : options(options), files(files), model(model), bar(bar), pairs(corpusOf(options, files, model)) {
  checkDistillation();
  checkLinks();
  if (options.data.mixes())
    mixed = options.data.corpusWeights.empty() ? mixtureByTemperature(pairs.sizes(), options.data.corpusTemperature)
                                               : mixtureByWeight(pairs.sizes(), options.data.corpusWeights);
}

// --distillation needs distributions in the data, and an executable that takes as many tokens as they have.
void TrainingData::checkDistillation() const {
  const std::vector<int64_t> tokens = pairs.tokensPerLabel();
  const int64_t most = *std::ranges::max_element(tokens), taken = teacherTokens(model.module());
  if (options.update.distillation == 0) {
    if (most > 0)
      bar.say("note: the distributions of a teacher in --data are not used; --distillation W gives them a share of the "
              "loss");
    return;
  }
  if (most == 0)
    throw Error("--distillation: no file of --data has the distributions of a teacher; make one with the teacher's "
                "executable: `prepare --model TEACHER --distribution K`");
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] > taken)
      throw Error(
          files.prepared[i] + ": has " + std::to_string(tokens[i]) + " tokens of a teacher for each label, but " +
          takenTokens(taken) + "; compile the model again with `xfc compile --distillation " + std::to_string(most) +
          "`" +
          (taken == 0 ? "" : ", or make the file again with `prepare --distribution " + std::to_string(taken) + "`"));
}

// Links in files need an executable that takes as many, and either all files have links or none has.
void TrainingData::checkLinks() {
  const std::vector<int64_t> links = pairs.linksPerLabel();
  const auto most = std::ranges::max_element(links);
  const int64_t taken = linksPerLabel(model.module());
  guided = *most > 0 && taken > 0;
  if (options.data.guided && *most == 0)
    throw Error("--guided-alignment-weight: no file of --data has word alignments; make them again with `prepare "
                "--guided-alignment`");
  if (options.data.guided && taken == 0)
    throw Error("--guided-alignment-weight: this executable was compiled without --guided-alignment and takes no "
                "links; compile the model again with `xfc compile --guided-alignment " +
                std::to_string(*most) + "`");
  if (*most > 0 && taken == 0)
    bar.say("note: the word alignments in --data are not used, because this executable was compiled without "
            "--guided-alignment");
  for (size_t i = 0; guided && i < links.size(); ++i) {
    if (links[i] == 0)
      throw Error(files.prepared[i] + ": has no word alignments, but " + files.prepared[most - links.begin()] +
                  " has; make it again with `prepare --guided-alignment`, where an empty line is a pair without links");
    if (links[i] > taken)
      throw Error(files.prepared[i] + ": its target tokens may have " + std::to_string(links[i]) +
                  " links, but this executable takes " + std::to_string(taken) +
                  "; compile the model again with `xfc compile --guided-alignment " + std::to_string(*most) +
                  "`, or make the file again with `prepare` of this executable");
  }
}

void TrainingData::describe() const {
  const CorpusTotals &totals = pairs.totals();
  bar.say(format("%zu %spairs, %lld source and %lld target tokens; skipped: ", pairs.size(),
                 pairs.hasWeights() ? "weighted " : "", static_cast<long long>(totals.tokens[XFC_SOURCE]),
                 static_cast<long long>(totals.tokens[XFC_TARGET])) +
          skippedOf(totals));
  if (const std::string note = unalignedOf(pairs.unalignedWords()); !note.empty())
    bar.say(note);
  for (const std::string &note : model.vocabularies().notes())
    bar.say(note);
  const PairFiles &text = options.data.text;
  const std::vector<std::string> &names = !options.data.pairs.empty() ? options.data.pairs
                                          : text.tables.empty()       ? text.sources
                                                                      : text.tables;
  for (size_t i = 0; i < mixed.sizes.size(); ++i)
    bar.say(format("%s: %lld pairs, an epoch has %lld of them (%.3g times the corpus)", names[i].c_str(),
                   static_cast<long long>(mixed.sizes[i]), static_cast<long long>(mixed.quotas[i]),
                   static_cast<double>(mixed.quotas[i]) / static_cast<double>(mixed.sizes[i])));
}

std::string TrainingData::mixtureText() const {
  if (mixed.empty())
    return "";
  const DataOptions &data = options.data;
  std::string text =
      data.corpusWeights.empty() ? format("--corpus-temperature %.17g", data.corpusTemperature) : "--corpus-weight";
  for (double weight : data.corpusWeights)
    text += format(" %.17g", weight);
  text += " of corpora of";
  for (int64_t size : mixed.sizes)
    text += " " + std::to_string(size);
  return text + " pairs";
}

std::string TrainingData::samplingText() const {
  const EpochSampling used = options.data.sampling(options.seed);
  return used.any() ? "--sentencepiece-alphas " + nlohmann::json(used.alphas[0]).dump() + " " +
                          nlohmann::json(used.alphas[1]).dump()
                    : "";
}

} // namespace xfc
