// `shortlist`: counts in parallel text which tokens translate which, for `translate --shortlist`.
#include "app/Commands.h"
#include "app/ResultWriter.h"
#include "corpora/LinePairs.h"
#include "corpora/WordAlignment.h"
#include "decode/Flags.h"
#include "decode/ModelOptions.h"
#include "decode/Shortlist.h"
#include "engine/Engine.h"
#include "support/Confinement.h"
#include <algorithm>
#include <optional>

namespace xfc {
namespace {

struct LexiconOptions {
  ModelOptions model;
  std::string source, target, alignments, output = "-";
  int64_t best = 100;
  int iterations = 5;
};

std::vector<LexiconPair> readPairs(const LexiconOptions &options, const LoadedVocabularies &vocabularies) {
  std::vector<LexiconPair> pairs;
  LinePairs lines(options.source, options.target, "line i of one belongs to line i of the other");
  std::optional<LineReader> links;
  if (!options.alignments.empty())
    links.emplace(options.alignments, longestLine);
  const Format format = options.model.format;
  for (std::string source, target, linked; lines.next(source, target);) {
    LexiconPair &pair = pairs.emplace_back();
    pair.source = vocabularies.source->encode(source, format, lines.first.where());
    pair.target = vocabularies.target->encode(target, format, lines.second.where());
    if (!links)
      continue;
    if (!links->next(linked))
      throw Error(options.alignments + ": has fewer lines than " + options.source + "; expected one for each pair");
    pair.links = readLinks(linked, links->where());
    for (const auto &[from, to] : pair.links)
      if (static_cast<size_t>(from) >= pair.source.size() || static_cast<size_t>(to) >= pair.target.size())
        throw Error(links->where() + ": " + std::to_string(from) + "-" + std::to_string(to) + ", but the pair has " +
                    std::to_string(pair.source.size()) + " and " + std::to_string(pair.target.size()) +
                    " tokens, which are numbered from 0");
  }
  if (std::string more; links && links->next(more))
    throw Error(options.alignments + ": has more lines than " + options.source + "; expected one for each pair");
  if (std::ranges::all_of(pairs, [](const LexiconPair &pair) { return pair.source.empty() || pair.target.empty(); }))
    throw Error(options.source + ": has no pair of lines with tokens on both sides");
  return pairs;
}

void run(const LexiconOptions &options) {
  confine({options.output});
  const Engine engine(1);
  const Module &module = engine.module();
  module.requireTranslator();
  const LoadedVocabularies vocabularies = loadVocabularies(options.model, module);
  const std::vector<LexiconPair> pairs = readPairs(options, vocabularies);
  const Lexicon lexicon = options.alignments.empty() ? lexiconOfPairs(pairs, module.sourceVocab, options.iterations)
                                                     : lexiconOfLinks(pairs, module.sourceVocab);
  ResultWriter output(options.output);
  output.write(textOf(lexicon, vocabularies, options.best));
  output.commit();
}

} // namespace

void addShortlist(Command app) {
  Command command = app.addVerb("shortlist", "count which tokens translate which, for translate --shortlist",
                                "translator shortlist --model run --source my.en --target my.fr --output lexicon");
  auto options = std::make_shared<LexiconOptions>();
  options->model.addPathTo(command,
                           "folder written by train, or executable that `pack` wrote, with the model's vocabulary");
  addVocabularies(command, options->model.vocabulary, options->model.targetVocabulary);
  addFormat(command, options->model.format);
  command.setSubject("Input and output");
  command.addOption("--source", options->source, "source lines").required();
  command.addOption("--target", options->target, "target lines, one for each source line").required();
  const CommandOption alignments = command.addOption("--alignments", options->alignments,
                                                     "word alignments, one line of links for each pair, such as 0-0 "
                                                     "1-2, each the number of a source token and that of a "
                                                     "target token, from 0 (default: IBM model 1 counts without them)");
  command
      .addOption("--output", options->output,
                 "a line TARGET SOURCE PROBABILITY for each pair of tokens; -: standard output")
      .showDefault();
  command.addOption("--best", options->best, "the most targets of a source token").positive().showDefault();
  command.addOption("--iterations", options->iterations, "iterations of IBM model 1")
      .within(1, 100)
      .showDefault()
      .excludes(alignments);
  command.setWork([options] { run(*options); });
}

} // namespace xfc
