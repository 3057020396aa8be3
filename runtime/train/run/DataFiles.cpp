// The files that a run trains on: those that it was given, or what a teacher or a preparation makes of them.
#include "train/run/DataFiles.h"
#include "corpora/Shard.h"
#include "decode/LabelLists.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/Format.h"
#include "support/Inputs.h"
#include "support/Json.h"
#include "support/LineReader.h"
#include "train/Prepare.h"
#include <filesystem>
#include <nlohmann/json.hpp>

namespace xfc {
namespace {

using Json = nlohmann::ordered_json;

// Bytes of the text; compressed files usually hold about four times their size.
int64_t sizeOf(const PairFiles &text) {
  int64_t bytes = 0;
  for (const std::vector<std::string> *files : {&text.sources, &text.targets, &text.tables})
    for (const std::string &file : *files) {
      std::error_code none;
      if (!std::filesystem::is_regular_file(file, none))
        continue; // a stream can be read only once
      const auto size = static_cast<int64_t>(std::filesystem::file_size(file, none));
      bytes += isCompressed(file) ? 4 * size : size;
    }
  return bytes;
}

bool isLarge(const DataFiles &files, const DataOptions &options) {
  return files.prepared.empty() && sizeOf(files.text) > options.textMemory;
}

// What the files are made from.
std::string factsOf(const PairFiles &given, const std::string &configuration, const TranslationModel &model) {
  Json facts = Json::object();
  const Json flags = parseOrderedJson(configuration, "config.json");
  for (const char *flag :
       {"teacher", "teacher-model", "teacher-n-best", "teacher-distribution", "format", "source-prefix",
        "target-prefix", "document-context", "document-separator", "data-weighting-type", "tsv-weighting",
        "guided-alignment-type", "filter-length", "filter-ratio", "corpus-weight", "corpus-temperature", "text-memory",
        "sentencepiece-alphas"})
    if (flags.contains(flag))
      facts[flag] = flags[flag];
  facts["vocabularies"] = {model.source->hash(), model.target->hash()};
  for (const std::vector<std::string> *files :
       {&given.sources, &given.targets, &given.tables, &given.weights, &given.alignments})
    for (const std::string &file : *files) {
      std::error_code none;
      facts["files"].push_back({file, std::filesystem::file_size(file, none),
                                std::filesystem::last_write_time(file, none).time_since_epoch().count()});
    }
  return facts.dump(2) + "\n";
}

// Makes what is missing of the files; `made` says that all are there already.
void makeAll(DataFiles &files, bool made, const TrainOptions &options, const TrainedModel &model,
             const RunFolder &folder, ProgressBar &bar) {
  const DataOptions &data = options.data;
  const TeacherRun run{data.format, options.threads, options.quiet};
  if (data.teacher.nBest > 0) {
    const std::string table = folder.file("distilled.tsv");
    files.text =
        made ? PairFiles{.sources = {}, .targets = {}, .tables = {table}, .weightColumn = data.teacher.nBest > 1}
             : translateByTeacher(data.teacher, data.text.sources, table, run);
  }
  if (data.teacher.distribution > 0) {
    files.prepared = {folder.file("taught.pairs")};
    if (!made)
      prepareByTeacher(data.teacher, files.text, data.filter, files.prepared.front(), run);
  }
  if (!isLarge(files, data))
    return;
  const std::vector<PairFiles> corpora = data.mixes() ? files.text.each() : std::vector{files.text};
  for (size_t i = 0; i < corpora.size(); ++i) {
    files.prepared.push_back(folder.file(format("text-%zu.pairs", i + 1)));
    if (!made)
      preparePairs(files.prepared.back(), corpora[i], data.filter, model.vocabularies(), model.engine(), data.format,
                   bar, data.sampling(options.seed).any());
  }
}

// The first rank's part.
void makeInFolder(DataFiles &files, const TrainOptions &options, const std::string &configuration,
                  const TrainedModel &model, RunFolder &folder, ProgressBar &bar) {
  const TeacherOptions &teacher = options.data.teacher;
  if (const int64_t taken = teacherTokens(model.module()); teacher.distribution > taken)
    throw Error("--teacher-distribution " + std::to_string(teacher.distribution) + ": " + takenTokens(taken) +
                "; compile the model again with `xfc compile --distillation " + std::to_string(teacher.distribution) +
                "`");
  const std::string facts = factsOf(options.data.text, configuration, model.translation),
                    factsFile = folder.file("data.json");
  makeFolder(options.out);
  folder.lock();
  folder.checkFor(options.resume);
  if (options.resume)
    folder.removePartial();
  const bool made = options.resume && exists(factsFile) && readFile(factsFile) == facts;
  if (!made) // a part of the files may be made, and then not belong to these facts
    std::filesystem::remove(factsFile);
  makeAll(files, made, options, model, folder, bar);
  if (made)
    return;
  for (const std::string &file : files.prepared) // the facts vouch for it
    const Shard readable(file, model.vocabularies(), model.module());
  writeFile(factsFile, facts);
}

} // namespace

std::string takenTokens(int64_t tokens) {
  return tokens == 0 ? "this executable was compiled without --distillation"
                     : "this executable takes " + std::to_string(tokens);
}

DataFiles makeDataFiles(const TrainOptions &options, const std::string &configuration, const TrainedModel &model,
                        RunFolder &folder, ProgressBar &bar, Ranks &ranks) {
  DataFiles files{options.data.text, options.data.pairs};
  ranks.together([&] {
    if (ranks.isFirst() && (options.data.teacher.any() || isLarge(files, options.data)))
      makeInFolder(files, options, configuration, model, folder, bar);
  });
  if (ranks.size() == 1)
    return files;
  const Json first = parseOrderedJson(
      ranks.broadcast(
          Json{{"tables", files.text.tables}, {"weights", files.text.weightColumn}, {"data", files.prepared}}.dump()),
      "the first rank");
  if (options.data.teacher.nBest > 0)
    files.text = {.sources = {},
                  .targets = {},
                  .tables = first["tables"].get<std::vector<std::string>>(),
                  .weightColumn = first["weights"].get<bool>()};
  if (options.data.pairs.empty())
    files.prepared = first["data"].get<std::vector<std::string>>();
  return files;
}

} // namespace xfc
