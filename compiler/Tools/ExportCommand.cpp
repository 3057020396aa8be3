// `xfc export`: turns a model of ours into a folder that another program reads.
#include "ExportCommand.h"
#include "Foreign/Export.h"
#include <cstdio>
#include <memory>

namespace xfc {

static void exportModel(const ExportOptions &options) {
  const ForeignExport done = exportForeign(options);
  for (const std::string &note : done.notes)
    std::fprintf(stderr, "note: %s\n", note.c_str());
  std::string files = "config.json, generation_config.json, model.safetensors";
  for (const std::string &file : done.tokenizerFiles)
    files += ", " + file;
  std::fprintf(stderr, "xfc: wrote %s: %s; a %s model with the weights of %s, %zu tensors, %.1f MB\n",
               options.to.c_str(), files.c_str(), done.modelType.c_str(), done.weights.c_str(), done.tensors,
               static_cast<double>(done.bytes) / 1e6);
}

void addExport(CLI::App &app) {
  auto options = std::make_shared<ExportOptions>();
  auto format = std::make_shared<std::string>();
  CLI::App *command =
      app.add_subcommand("export", "convert a model and its weights to a folder that another program can read");
  command
      ->add_option("folder", options->from,
                   "the --out folder of train (its best weights, or else its last), or a folder made by `xfc import`")
      ->required();
  command->add_option("--to", *format, "hf: a Hugging Face folder")->required()->check(CLI::IsMember({"hf"}));
  command->add_option("-o,--output", options->to, "the folder to create")->required();
  command->callback([options, format] { exportModel(*options); });
}

} // namespace xfc
