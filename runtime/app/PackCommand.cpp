// `pack`: writes a copy of this executable with weights and vocabulary inside.
#include "app/Commands.h"
#include "decode/Defaults.h"
#include "decode/ModelOptions.h"
#include "decode/Packed.h"
#include "support/FileWriter.h"
#include "support/MappedFile.h"
#include <cstdio>

namespace xfc {

namespace {

void run(ModelOptions options, const std::string &output) {
  checkWritable(output);
  ModelFiles files = modelFiles(options);
  if (files.weights.empty())
    throw Error("no model: give --model DIR (the --out folder of train), or --weights FILE and --vocab FILE");
  // A model that does not load must not be packed.
  if (files.vocabulary.empty())
    options.format = Format::Ids;
  const MappedFile weights(files.weights);
  const TranslationModel model = loadModel(options);
  weights.requireUnchanged(/*byName=*/true); // so it is the file that was loaded
  if (const Module &module = model.engine->module(); generationOf(module, options.model) != module.settings.generation)
    throw Error(options.model +
                "/model.json: generation differs from that of this executable, by which the packed one "
                "would search; compile the folder: xfc compile " +
                options.model);
  writePacked(weights.contents(), files.vocabulary.empty() ? "" : model.source->bytes(),
              files.targetVocabulary.empty() ? "" : model.target->bytes(), output);
  if (!options.quiet)
    std::fprintf(stderr, "%s carries %s%s\n", output.c_str(), files.weights.c_str(),
                 files.vocabulary.empty() ? " and no vocabulary" : " and its vocabulary");
}

} // namespace

void addPack(Command app) {
  Command command = app.addVerb("pack", "write a copy of this executable with weights and vocabulary inside",
                                "translator pack --model run -o packed");
  auto options = std::make_shared<ModelOptions>();
  auto output = std::make_shared<std::string>();
  options->addTo(command);
  options->addVocabularyTo(command, false);
  command.addOption("-o,--output", *output, "the packed executable").required();
  command.setWork([options, output] { run(*options, *output); });
}

} // namespace xfc
