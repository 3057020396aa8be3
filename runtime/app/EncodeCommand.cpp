// `encode` and `decode`: convert text into ids and back with the model's own tokenizer.
#include "app/Commands.h"
#include "app/ResultWriter.h"
#include "corpora/LinePairs.h"
#include "decode/Flags.h"
#include "decode/ModelOptions.h"
#include "engine/Engine.h"
#include "support/Confinement.h"
#include "support/LineReader.h"
#include <algorithm>
#include <functional>

namespace xfc {
namespace {

struct EncodeOptions {
  ModelOptions model;
  std::string input = "-", output = "-";
  bool otherSide = false; // encode: the target's vocabulary; decode: the source's
};

// Converts line by line. Output is written as soon as no more input is ready, so that a caller that waits for the
// answer to a line gets it.
void eachLine(const EncodeOptions &options,
              const std::function<std::string(const std::string &, const std::string &)> &of) {
  ResultWriter output(options.output);
  LineReader input(options.input, longestLine);
  std::string text;
  for (std::string line; input.next(line);) {
    text += of(line, input.where()) + "\n";
    if (text.size() >= windowBytes || !input.ready(0)) {
      output.write(text);
      text.clear();
    }
  }
  output.write(text);
  output.commit();
}

void encode(const EncodeOptions &options) {
  confine({options.output});
  const Engine engine(1);
  const Module &module = engine.module();
  module.requireTranslator();
  const LoadedVocabularies loaded = loadVocabularies(options.model, module);
  const Vocabulary &vocabulary = options.otherSide ? *loaded.target : *loaded.source;
  Frame frame = vocabulary.sourceFrame(module, options.model.format);
  if (options.otherSide)
    frame = {vocabulary.targetPrefix(options.model.format), {}};
  eachLine(options, [&](const std::string &line, const std::string &where) {
    return vocabulary.decode(framed(vocabulary.encode(line, options.model.format, where), frame), Format::Ids);
  });
}

void decode(const EncodeOptions &options) {
  confine({options.output});
  const Engine engine(1);
  const Module &module = engine.module();
  module.requireTranslator();
  const LoadedVocabularies loaded = loadVocabularies(options.model, module);
  const Vocabulary &vocabulary = options.otherSide ? *loaded.source : *loaded.target;
  eachLine(options, [&](const std::string &line, const std::string &where) {
    std::string text = vocabulary.decode(vocabulary.encode(line, Format::Ids, where), options.model.format);
    std::replace(text.begin(), text.end(), '\n', ' '); // decoded text stays on one line
    return text;
  });
}

void addVerb(Command app, const char *name, const char *description, const char *example, const char *side,
             const char *sideText, void (*run)(const EncodeOptions &)) {
  Command command = app.addVerb(name, description, example);
  auto options = std::make_shared<EncodeOptions>();
  options->model.addPathTo(command,
                           "folder written by train, or executable that `pack` wrote, with the model's vocabulary");
  addVocabularies(command, options->model.vocabulary, options->model.targetVocabulary);
  command
      .addOption(
          "--format", [options](const std::string &format) { options->model.format = formatNamed(format); },
          "what lines of text hold: text, or pieces")
      .oneOf({"text", "pieces"})
      .showDefault("text")
      .subject("Vocabularies");
  command.setSubject("Input and output");
  command.addOption("--input", options->input, "input lines; -: standard input").showDefault();
  command.addOption("--output", options->output, "one line for each input line; -: standard output").showDefault();
  command.addFlag(side, options->otherSide, sideText);
  command.setWork([options, run] { run(*options); });
}

} // namespace

void addEncode(Command app) {
  addVerb(app, "encode", "turn lines of text into token ids, as the encoder reads them",
          "echo \"How are you?\" | translator encode --model run", "--target",
          "encode target lines, as the decoder reads them, instead of source lines", encode);
}

void addDecode(Command app) {
  addVerb(app, "decode", "turn lines of token ids into text", "translator decode --model run --input ids --output text",
          "--source", "the ids are of the source vocabulary", decode);
}

} // namespace xfc
