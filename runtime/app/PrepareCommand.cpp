// `prepare`: tokenizes parallel text into a file of ids for `train --data`.
#include "app/Commands.h"
#include "decode/Flags.h"
#include "support/Confinement.h"
#include "train/Prepare.h"

namespace xfc {

void addPrepare(CLI::App &app) {
  CLI::App *command = app.add_subcommand("prepare", "tokenize parallel text once, into a file for train --data");
  auto options = std::make_shared<PrepareOptions>();
  addPairs(*command, options->text, options->filter);
  addVocabularies(*command, options->vocabulary, options->targetVocabulary);
  command->add_option("--out", options->out, "the file to write")->required();
  addThreads(*command, options->threads);
  addFormat(*command, options->format);
  addQuiet(*command, options->quiet);
  command->callback([options] {
    requirePairs(options->text);
    if (options->format != Format::Ids && options->vocabulary.empty())
      throw CLI::RequiredError("--vocab (or --format ids)");
    confine({options->out});
    prepare(*options);
  });
}

} // namespace xfc
