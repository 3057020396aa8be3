// `average`: averages several files of weights into one.
#include "app/Commands.h"
#include "decode/Flags.h"
#include "decode/ModelOptions.h"
#include "engine/Identity.h"
#include "engine/Safetensors.h"
#include "support/Confinement.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include "train/Checkpoint.h"
#include "vocabularies/VocabularyIdentity.h"
#include <cstdio>

namespace xfc {
namespace {

struct AverageOptions {
  std::vector<std::string> inputs;
  std::string output;
  int64_t last = 0; // newest files to take of each folder; 0: all
  bool forceModel = false, quiet = false;
  int threads = 0;
};

// The files that `input` stands for: what `train` kept in a folder, oldest first, or the file itself.
std::vector<std::string> filesOf(const std::string &input, int64_t last) {
  const RunFolder folder(input);
  if (!folder.isFolder())
    return {input};
  std::vector<int64_t> steps = folder.keptSteps();
  if (steps.empty())
    throw Error(input + ": holds no step-N.safetensors to average; train with --keep K, or name files of weights");
  if (last > 0 && last < static_cast<int64_t>(steps.size()))
    steps.erase(steps.begin(), steps.end() - last);
  std::vector<std::string> files;
  files.reserve(steps.size());
  for (int64_t step : steps)
    files.push_back(folder.file(folder.keptFile(step)));
  return files;
}

void run(const AverageOptions &options) {
  checkWritable(options.output);
  confine({options.output});
  std::vector<std::string> files;
  for (const std::string &input : options.inputs)
    for (std::string &file : filesOf(input, options.last))
      files.push_back(std::move(file));
  const std::unique_ptr<Engine> engine = makeEngine(options.threads, {});
  const std::vector<Metadata> metadata = loadMean(*engine, files, options.forceModel);
  Metadata identity = identityOf(engine->module());
  for (const char *key : {sourceVocabularyKey, targetVocabularyKey})
    for (size_t i = 0; i < files.size(); ++i) {
      const auto found = metadata[i].find(key);
      if (found == metadata[i].end())
        continue;
      if (const auto [known, isNew] = identity.insert(*found); !isNew && known->second != found->second)
        throw Error(files[i] + ": was trained with another vocabulary (" + key + " " + found->second +
                    ") than the files before it (" + known->second + "); their mean would be meaningless");
    }
  identity["averaged"] = std::to_string(files.size());
  writeSafetensors(options.output, weights(*engine), identity, &engine->pool());
  if (!options.quiet)
    std::fprintf(stderr, "%s: the mean of %zu files, from %s to %s\n", options.output.c_str(), files.size(),
                 files.front().c_str(), files.back().c_str());
}

} // namespace

void addAverage(Command app) {
  Command command = app.addVerb("average", "write the mean of several files of weights",
                                "translator average run --last 5 -o run/average.safetensors");
  auto options = std::make_shared<AverageOptions>();
  command
      .addOption("inputs", options->inputs,
                 "files of weights, and folders of train, which stand for the step-N.safetensors in them")
      .required();
  command.addOption("-o,--output", options->output, "the file to write").required();
  command.addOption("--last", options->last, "only the newest K files of each folder; 0: all")
      .notNegative()
      .showDefault();
  command.addFlag("--force-model", options->forceModel, "accept weights recorded as belonging to another model");
  addThreads(command, options->threads);
  addQuiet(command, options->quiet);
  command.setWork([options] { run(*options); });
}

} // namespace xfc
