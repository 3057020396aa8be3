// `xfc import`: turns a model of another program into a folder that `xfc compile` takes.
#include "ImportCommand.h"
#include "Foreign/Foreign.h"
#include "support/Terminal.h"
#include <cstdio>
#include <memory>

namespace xfc {

static void import(const ForeignOptions &options) {
  const ForeignImport done = importForeign(options);
  for (const std::string &note : done.notes)
    printMessage(MessageKind::Note, note.c_str());
  std::fprintf(stderr,
               "xfc: wrote %s: model.json, model.safetensors%s of '%s', %zu parameters, %.1f MB; next: "
               "xfc compile %s -o translator\n",
               options.to.c_str(), done.readsText ? " and vocabulary" : "", done.model.c_str(), done.parameters,
               static_cast<double>(done.bytes) / 1e6, options.to.c_str());
}

void addImport(Command app) {
  auto options = std::make_shared<ForeignOptions>();
  Command command = app.addVerb("import",
                                "convert another program's model to model.json and weights: " + listedFamilies() +
                                    "; Marian's .npz files, CTranslate2 folders",
                                "xfc import opus-mt-en-de -o model");
  command
      .addOption("folder", options->from,
                 "a Hugging Face folder (config.json, and model.safetensors or its shards with their index), a Marian "
                 ".npz file or its folder, or a CTranslate2 folder")
      .required();
  command.addOption("-o,--output", options->to, "the folder to create, for `xfc compile` and --model").required();
  command.addOption(
      "--source-language", options->sourceLanguage,
      "the language of source lines, as the model names it (eng_Latn, en_XX); default: the tokenizer's own");
  command.addOption("--target-language", options->targetLanguage,
                    "the language to translate into, named in the same way");
  command
      .addOption("--normalize-punctuation", options->punctuation,
                 "normalize the punctuation of source lines by Moses' rules for this language (en, de, ...), or auto: "
                 "for the one that tokenizer_config.json names; also that of target lines, if that file names their "
                 "language (default: leave lines as they are)")
      .valueName("auto|LANGUAGE");
  command.setWork([options] { import(*options); });
}

} // namespace xfc
