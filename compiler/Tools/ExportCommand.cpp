// `xfc export`: turns a model of ours into a folder that another program reads.
#include "ExportCommand.h"
#include "Foreign/Export.h"
#include "support/Terminal.h"
#include <cstdio>
#include <memory>

namespace xfc {

static void exportModel(const ExportOptions &options) {
  const ForeignExport done = exportForeign(options);
  for (const std::string &note : done.notes)
    printMessage(MessageKind::Note, note.c_str());
  std::string files;
  for (const std::string &file : done.files)
    files += (files.empty() ? "" : ", ") + file;
  std::fprintf(stderr, "xfc: wrote %s: %s; a %s model with the weights of %s, %zu tensors, %.1f MB\n",
               options.to.c_str(), files.c_str(), done.modelType.c_str(), done.weights.c_str(), done.tensors,
               static_cast<double>(done.bytes) / 1e6);
}

void addExport(Command app) {
  auto options = std::make_shared<ExportOptions>();
  std::vector<std::string> names;
  std::string meanings;
  for (const ExportFormat &format : exportFormats()) {
    names.push_back(format.name);
    meanings += (meanings.empty() ? "" : "; ") + format.name + ": " + format.what;
  }
  Command command = app.addVerb("export", "convert a model and its weights to a folder that another program can read",
                                "xfc export run --to hf -o folder");
  command
      .addOption("folder", options->from,
                 "the --out folder of train (its best weights, or else its last), or a folder made by `xfc import`")
      .required();
  command.addOption("--to", options->format, meanings).required().oneOf(names);
  command.addOption("-o,--output", options->to, "the folder to create").required();
  CommandOption quantization =
      command
          .addOption("--quantization", options->quantization,
                     "the type of the weights in a CTranslate2 folder; int8 gives each row of a matrix a scale")
          .showDefault()
          .oneOf({"float32", "float16", "bfloat16", "int8"});
  command.setWork([options, quantization] {
    if (quantization.count() > 0 && options->format != "ctranslate2")
      throw UsageError("--quantization",
                       "only --to ctranslate2 converts weights; --to " + options->format + " keeps their types");
    exportModel(*options);
  });
}

} // namespace xfc
