// `prepare`: tokenizes parallel text into a file of ids for `train --data`.
#include "app/Commands.h"
#include "decode/Flags.h"
#include "support/Confinement.h"
#include "train/Prepare.h"

namespace xfc {

void addPrepare(Command app) {
  Command command = app.addVerb("prepare", "tokenize parallel text once, into a file for train --data",
                                "translator prepare --source my.en --target my.fr --vocab spm.model --out my.data");
  auto options = std::make_shared<PrepareOptions>();
  addPairs(command, options->text, options->filter);
  command.setSubject("Output");
  command.addOption("--out", options->out, "the file to write").required();
  command.addFlag("--keep-text", options->keepText,
                  "also store the text, for train --sentencepiece-alphas; not with --distribution, --guided-alignment "
                  "or another --format");
  command
      .addOption("--distribution", options->distribution,
                 "also store, for each label, this many of the most probable tokens under the model, the "
                 "teacher, and their probabilities, for train --distillation; 0: none")
      .within(int64_t(0), mostProbableTokens)
      .showDefault()
      .valueName("K");
  options->model.addTo(command);
  options->model.addVocabularyTo(command);
  addBatchTokens(command, options->batchTokens, "target tokens, that the teacher reads at a time");
  command.setWork([command, options] {
    requirePairs(options->text);
    checkAlignmentType(command, options->text, options->model.format);
    checkPairContext(command, options->text);
    if (options->keepText && (options->distribution > 0 || !options->text.alignments.empty()))
      throw ExcludesError(options->distribution > 0 ? "--distribution" : "--guided-alignment", "--keep-text");
    if (options->keepText && options->model.format != Format::Text)
      throw UsageError("--keep-text", "lines of pieces or ids are segmented already; it needs --format text");
    if (options->distribution == 0) {
      for (const char *ofTeacher : {"--model", "--weights", "--force-model", "--force-vocab", "--device",
                                    "--cuda-image", "--cuda-step", "--batch-tokens"})
        if (command.given(ofTeacher))
          throw RequiredError("--distribution (with " + std::string(ofTeacher) + ")");
      if (options->model.format != Format::Ids && options->model.vocabulary.empty())
        throw RequiredError("--vocab (or --format ids)");
    }
    confineOn(options->model.device.device, {options->out});
    prepare(*options);
  });
}

} // namespace xfc
