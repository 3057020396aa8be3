// Flags that several verbs share.
#include "decode/Flags.h"
#include "decode/Defaults.h"
#include "support/CommandLine.h"
#include "support/LineReader.h"
#include <algorithm>
#include <charconv>
#include <sstream>

namespace xfc {

void addThreads(Command command, int &threads) {
  command.addOption("--threads", threads, "number of threads; 0: one per processor")
      .within(0, 4096)
      .showDefault()
      .subject("Machine");
}

CommandOption addWorkers(Command command, int &workers) {
  return command
      .addOption("--workers", workers,
                 "how many engines decode at the same time, each with its share of --threads; they have one copy of "
                 "the weights")
      .within(1, 4096)
      .showDefault()
      .subject("Machine");
}

void addQuiet(Command command, bool &quiet) {
  command.addFlag("--quiet", quiet, "do not show progress").subject("Options");
}

void addTrace(Command command, std::string &file) {
  command
      .addOption("--trace", file,
                 "write a timeline of every kernel on every thread, which Perfetto and chrome://tracing open")
      .valueName("FILE")
      .subject("Machine");
}

void addVocabularies(Command command, std::string &source, std::string &target) {
  const Subject vocabularies(command, "Vocabularies");
  command.addOption("--vocab", source,
                    "vocabulary (a SentencePiece model, a tokenizer.json, or a list of words), for both languages "
                    "unless --target-vocab is given");
  command.addOption("--target-vocab", target, "vocabulary of the target language");
}

// Parses A:B; either may be missing.
static void readLengths(const std::string &text, PairFilter &filter) {
  const size_t colon = text.find(':');
  int64_t *number = &filter.shortest;
  filter.shortest = filter.longest = 0;
  bool right = colon != std::string::npos && text.size() > 1;
  for (std::string_view part : {std::string_view(text).substr(0, colon), std::string_view(text).substr(colon + 1)}) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), *number);
    right &= part.empty() || (error == std::errc() && end == part.data() + part.size() && *number > 0);
    number = &filter.longest;
    if (!right)
      break;
  }
  if (!right || (filter.longest > 0 && filter.longest < filter.shortest))
    throw UsageError("--filter-length",
                     "expected A:B, two whole numbers of which one may be left out, such as 1:80, but '" + text +
                         "' was given");
}

CommandOption addContext(Command command, ContextOptions &context, const std::string &meaning) {
  const Subject documents(command, "Documents");
  command.addOption("--document-context", context.sentences, meaning).within(int64_t(0), mostContext).showDefault();
  return command.addOption("--document-separator", context.separator,
                           "--document-context: what stands between two sentences (default: a blank)");
}

void checkContext(const ContextOptions &context, const CommandOption &separator) {
  if (separator.count() > 0 && context.sentences == 0)
    throw Error("--document-separator stands between the sentences of --document-context; give that, too");
  if (context.separator.find('\n') != std::string::npos || invalidUtf8(context.separator) != std::string::npos)
    throw Error("--document-separator: expected text in UTF-8, without a line break");
}

void addPairs(Command command, PairFiles &files, PairFilter &filter) {
  const Subject data(command, "Data");
  command.addOption(
      "--source", files.sources,
      "source text, one sentence per line; several files are read one after the other; gzip and zstd are recognized");
  command.addOption("--target", files.targets, "its translations, line by line");
  command.addOption("--tsv", files.tables,
                    "source and target in one file: each line holds a source sentence, a tab and its translation");
  command
      .addOption("--source-prefix", files.sourcePrefixes,
                 "tokens to put before those of every source line, such as a tag <2de>: one text for all files, or "
                 "one for each")
      .valueName("TEXT");
  command
      .addOption("--target-prefix", files.targetPrefixes,
                 "the same for target lines: what translate --prefix is to be given later")
      .valueName("TEXT");
  addContext(
      command, files.context,
      "pairs consist of a line of either side and the N before it of the same document, as many of them as the "
      "model takes; blank lines of both sides separate documents, which end with their files, too; 0: of the line "
      "alone");
  command.setSubject("Weights and word alignments");
  command.addOption("--data-weighting", files.weights,
                    "the weight of each pair in the loss, one number per line; several files are read one after the "
                    "other");
  command.addFlag("--tsv-weighting", files.weightColumn, "lines of --tsv have a third column, the weight of the pair");
  command
      .addOption(
          "--data-weighting-type", [&files](const std::string &what) { files.weighWords = what == "word"; },
          "what lines of weights hold: the weight of the sentence (default), or one of each word, that is, of each "
          "token of the target, separated by blanks")
      .oneOf({"sentence", "word"});
  command.addOption("--guided-alignment", files.alignments,
                    "word alignments that the attention is to learn, for executables of `xfc compile "
                    "--guided-alignment`: one line of links for each pair, such as 0-0 1-2, each the number of a "
                    "source token and that of a target token, from 0; several files are read one after the other");
  command
      .addOption(
          "--guided-alignment-type", [&files](const std::string &what) { files.alignWords = what == "word"; },
          "what links are between: tokens as `encode` prints them (default), or words of the text, which are separated "
          "by blanks: all tokens of two linked words are linked")
      .oneOf({"token", "word"});
  command.setSubject("Data");
  command
      .addOption(
          "--filter-length", [&filter](const std::string &text) { readLengths(text, filter); },
          "leave out pairs in which either side has fewer than A or more than B tokens")
      .valueName("A:B");
  command
      .addOption("--filter-ratio", filter.ratio,
                 "leave out pairs in which one side is more than this many times as long as the other, in tokens")
      .within(1.0, 1e6)
      .finite();
}

void requirePairs(const PairFiles &files, const std::string &inPlace) {
  const bool lines = !(files.sources.empty() && files.targets.empty());
  if (lines && !files.tables.empty())
    throw ExcludesError("--tsv", files.sources.empty() ? "--target" : "--source");
  if (files.tables.empty() && files.sources.empty())
    throw RequiredError("--source (or --tsv" + inPlace + ")");
  if (files.tables.empty() && files.targets.empty())
    throw RequiredError("--target");
  const auto requireForEach = [&](const char *flag, const std::vector<std::string> &prefixes, const char *of,
                                  const std::vector<std::string> &given) {
    if (prefixes.size() > 1 && prefixes.size() != given.size())
      throw UsageError(flag, "expected one text, or one for each file of " + std::string(of) + ", of which " +
                                 std::to_string(given.size()) + " were given, but there are " +
                                 std::to_string(prefixes.size()));
  };
  const bool inTables = !files.tables.empty();
  requireForEach("--source-prefix", files.sourcePrefixes, inTables ? "--tsv" : "--source",
                 inTables ? files.tables : files.sources);
  requireForEach("--target-prefix", files.targetPrefixes, inTables ? "--tsv" : "--target",
                 inTables ? files.tables : files.targets);
  if (files.weightColumn && !files.weights.empty())
    throw ExcludesError("--tsv-weighting", "--data-weighting");
  if (files.weightColumn && files.tables.empty())
    throw RequiredError("--tsv (with --tsv-weighting)");
  if (files.weighWords && files.weighting() == Weighting::None)
    throw RequiredError("--data-weighting or --tsv-weighting (with --data-weighting-type)");
}

void checkAlignmentType(Command command, const PairFiles &files, Format format) {
  const char *flag = "--guided-alignment-type";
  if (files.alignments.empty() && command.given(flag))
    throw RequiredError("--guided-alignment (with " + std::string(flag) + ")");
  if (files.alignWords && format != Format::Text)
    throw UsageError(flag, "lines of pieces or ids have no words; word needs --format text");
}

void checkPairContext(Command command, const PairFiles &files) {
  checkContext(files.context, command.option("--document-separator"));
  if (files.context.sentences > 0 && !files.alignments.empty())
    throw ExcludesError("--document-context", "--guided-alignment");
  if (files.context.sentences > 0 && files.weighWords)
    throw ExcludesError("--document-context", "--data-weighting-type word");
}

Format formatNamed(std::string_view name) {
  return name == "ids" ? Format::Ids : name == "pieces" ? Format::Pieces : Format::Text;
}

void addFormat(Command command, Format &format) {
  command
      .addOption(
          "--format", [&format](const std::string &name) { format = formatNamed(name); },
          "what lines hold: text, pieces, or ids")
      .oneOf({"text", "pieces", "ids"})
      .showDefault("text")
      .subject("Vocabularies");
}

CommandOption addBatchTokens(Command command, int64_t &tokens, const std::string &ofWhat) {
  return command.addOption("--batch-tokens", tokens, "maximum number of source tokens, and of " + ofWhat)
      .positive()
      .showDefault();
}

CommandOption addBeam(Command command, int64_t &beam) {
  return command.addOption("--beam", beam, findSetting("beam")->meaning)
      .within(int64_t(1), mostHypotheses)
      .showDefault();
}

static std::string joined(const std::vector<int32_t> &ids) {
  std::string text;
  for (int32_t id : ids)
    text += (text.empty() ? "" : " ") + std::to_string(id);
  return text;
}

void addComputeType(Command command, std::string &type) {
  command
      .addOption("--compute-type", type,
                 "type that decoding multiplies in: one of those that `info` lists (default: the first)")
      .subject("Machine");
}

SearchFlags::SearchFlags() { options.generation = settingsOfExecutable().generation; }

// Adds the option of a setting; help shows the setting of `generation` as the default.
CommandOption SearchFlags::add(Command command, const GenerationSetting &setting, const std::string &meaning) {
  const std::string flag = optionOf(setting);
  Generation &generation = options.generation;
  if (const auto *range = std::get_if<GenerationSetting::Whole>(&setting.value))
    return command.addOption(flag, generation.*range->member, meaning).within(range->least, range->most).showDefault();
  if (const auto *range = std::get_if<GenerationSetting::Number>(&setting.value)) {
    CommandOption option = command.addOption(flag, generation.*range->member, meaning);
    return (range->above ? option.above(range->least, range->most) : option.within(range->least, range->most))
        .showDefault();
  }
  if (const auto *choice = std::get_if<GenerationSetting::Choice>(&setting.value)) {
    const std::vector<std::string> words(choice->words.begin(), choice->words.end());
    return command
        .addOption(
            flag,
            [&generation, choice, words](const std::string &word) {
              choice->set(generation, static_cast<size_t>(std::ranges::find(words, word) - words.begin()));
            },
            meaning)
        .oneOf(words)
        .showDefault(words[choice->get(generation)]);
  }
  if (const auto *tokens = std::get_if<GenerationSetting::Tokens>(&setting.value)) {
    std::string &text = lists[flag].emplace_back(joined(generation.*tokens->member));
    return command.addOption(flag, text, meaning + "; ids, or pieces of the target vocabulary, separated by blanks")
        .showDefault();
  }
  const char *const between =
      std::holds_alternative<GenerationSetting::Constraints>(setting.value) ? ", with || between phrases" : "";
  return command
      .addOption(flag, lists[flag],
                 meaning + "; each given by ids, or pieces of the target vocabulary, separated by blanks" + between)
      .valueName("TOKENS");
}

void SearchFlags::addSettings(Command command, GenerationSetting::Subject subject) {
  const std::string when = subject == GenerationSetting::Subject::Sampling ? "sampling: " : "";
  for (const GenerationSetting &setting : generationSettings())
    if (setting.subject == subject)
      given.emplace_back(&setting, add(command, setting, when + setting.meaning));
}

void SearchFlags::addTo(Command command) {
  using enum GenerationSetting::Subject;
  for (const auto &[subject, heading] : {std::pair{Lengths, "Lengths"}, {Tokens, "Tokens that may be written"}}) {
    const Subject under(command, heading);
    addSettings(command, subject);
  }
  const Subject searching(command, "Search");
  addSettings(command, Search);
  addBatchTokens(command, options.batchTokens, "live hypotheses, at a time");
  command
      .addOption("--batch-sentences", options.batchSentences,
                 "maximum number of sentences at a time; 0: as many as --batch-tokens allows")
      .notNegative()
      .showDefault();
}

void SearchFlags::addSamplingTo(Command command) {
  const Subject several(command, "Several translations, and sampling");
  command
      .addOption(
          "--n-best", options.nBest,
          "translations per sentence, best first; above 1, each line begins with the source line's number and a tab")
      .within(1, static_cast<int>(mostHypotheses))
      .showDefault();
  command.addFlag("--alternatives", options.alternatives,
                  "translations that begin differently: with each of the --n-best most probable tokens that may follow "
                  "the forced beginning, in their order, and from there the best that a beam of its own finds");
  leastAlternative =
      command
          .addOption("--min-alternative-probability", options.leastAlternative,
                     "--alternatives: leave out tokens that are less probable, except the most probable one")
          .within(0.0, 1.0)
          .showDefault();
  command.addFlag("--sample", options.sample, "draw tokens at random instead of searching with a beam");
  command
      .addOption(
          "--mbr",
          [this](const std::string &utility) {
            options.utility.reset();
            if (utility != "none")
              options.utility = utility == "bleu" ? Utility::Bleu : Utility::Chrf;
          },
          "minimum Bayes risk: draw --samples translations, and choose the one with the highest mean of its chrF, or "
          "BLEU, with each of them as the reference")
      .oneOf({"none", "chrf", "bleu"})
      .showDefault("none");
  samples = command.addOption("--samples", options.samples, "--mbr: how many translations to draw")
                .within(1, mostSamples)
                .showDefault();
  addSettings(command, GenerationSetting::Subject::Sampling);
  command.addOption("--seed", options.seed, "sampling: seed of the random numbers").showDefault();
}

void SearchFlags::addRescoringTo(Command command) {
  command
      .addOption("--rescore-weight", options.rescoreWeight,
                 "--rescore: what its log-probability is multiplied by before it is added")
      .within(0.0, 1e6)
      .showDefault("1")
      .subject("Model");
}

// The value of --alignments is given after '=', as that of any option that may be without one: a word that follows is
// not taken for it.
void SearchFlags::addDetailsTo(Command command) {
  const Subject about(command, "What is told of translations");
  command.addFlag("--token-scores", options.details.tokenScores,
                  "the log-probability of each token, and of eos if it follows; in text after a tab");
  command
      .addFlag("--alignments{hard}", alignments,
               "which source tokens each token attends to, in text after a tab. hard: the one that it attends to most, "
               "as pairs i-j (source token - target token, from 0); --alignments=soft: the probability of each, "
               "separated by commas, with those of eos last")
      .oneOf({"none", "hard", "soft"});
  command.addFlag("--replace-unknowns", options.details.replaceUnknowns,
                  "write the source token that it attends to most in place of each unknown token");
  command
      .addOption(
          "--protect",
          [this](const std::vector<std::string> &expressions) {
            options.protect.clear();
            for (const std::string &expression : expressions)
              if (expression.find_first_not_of(' ') != std::string::npos) // none
                try {
                  options.protect.emplace_back(expression);
                } catch (const Error &error) {
                  throw UsageError("--protect", error.what());
                }
          },
          "regular expression of parts of the line that its translations have as they are, such as "
          "'\\{[^{}]*\\}' for {name}; may be given several times")
      .valueName("REGEX");
}

void SearchFlags::addContextTo(Command command) {
  separator = addContext(command, options.context,
                         "translate each sentence of a document given the N before it and their translations, for "
                         "models that were trained so; 0: by itself");
}

void SearchFlags::addAllTo(Command command) {
  addTo(command);
  addSamplingTo(command);
  addRescoringTo(command);
  addDetailsTo(command);
  addContextTo(command);
  addComputeType(command, options.computeType);
}

static std::vector<int32_t> tokensOf(const std::string &text, const Vocabulary &target, const std::string &flag) {
  std::vector<int32_t> ids;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    int32_t id = 0;
    const char *end = word.data() + word.size();
    if (const auto [read, error] = std::from_chars(word.data(), end, id); error == std::errc() && read == end) {
      ids.push_back(id);
      continue;
    }
    const std::vector<int32_t> found = target.encode(word, Format::Pieces, flag);
    ids.insert(ids.end(), found.begin(), found.end());
  }
  return ids;
}

// The phrases of a constraint, without those that are empty.
static Constraint constraintOf(const std::string &text, const Vocabulary &target, const std::string &flag) {
  Constraint constraint;
  std::istringstream words(text + " ||");
  std::string phrase;
  for (std::string word; words >> word;) {
    if (word != "||")
      phrase += word + " ";
    else if (std::vector<int32_t> ids = tokensOf(std::exchange(phrase, {}), target, flag); !ids.empty())
      constraint.push_back(std::move(ids));
  }
  return constraint;
}

void SearchFlags::resolve(const Generation &own, const Vocabulary &target) {
  if (samples && samples->count() > 0 && !options.utility)
    throw Error("--samples is the number of translations that --mbr compares; give --mbr chrf or bleu, or --sample and "
                "--n-best for translations that are drawn");
  if (leastAlternative && leastAlternative->count() > 0 && !options.alternatives)
    throw Error("--min-alternative-probability leaves out some of --alternatives; give that, too");
  if (separator)
    checkContext(options.context, *separator);
  if (!alignments.empty())
    options.details.alignments = alignments == "hard"   ? Details::Alignments::Hard
                                 : alignments == "soft" ? Details::Alignments::Soft
                                                        : Details::Alignments::None;
  Generation &generation = options.generation;
  for (const auto &[setting, option] : given) {
    const std::string flag = optionOf(*setting);
    if (option.count() == 0) {
      copySetting(*setting, generation, own);
    } else if (const auto *tokens = std::get_if<GenerationSetting::Tokens>(&setting->value)) {
      generation.*tokens->member = tokensOf(lists.at(flag).front(), target, flag);
    } else if (const auto *sequences = std::get_if<GenerationSetting::Sequences>(&setting->value)) {
      (generation.*sequences->member).clear();
      for (const std::string &text : lists.at(flag))
        if (std::vector<int32_t> tokens = tokensOf(text, target, flag); !tokens.empty()) // an empty text: none
          (generation.*sequences->member).push_back(std::move(tokens));
    } else if (const auto *constraints = std::get_if<GenerationSetting::Constraints>(&setting->value)) {
      (generation.*constraints->member).clear();
      for (const std::string &text : lists.at(flag))
        if (Constraint constraint = constraintOf(text, target, flag); !constraint.empty()) // an empty text: none
          (generation.*constraints->member).push_back(std::move(constraint));
    }
  }
  // Groups that come with the model are for its own beam; another one need not be a multiple of them.
  const auto isGiven = [&](const std::string &flag) {
    return std::ranges::any_of(
        given, [&](const auto &each) { return optionOf(*each.first) == flag && each.second.count() > 0; });
  };
  if (isGiven("--beam") && !isGiven("--beam-groups") && generation.beam % generation.beamGroups != 0)
    generation.beamGroups = 1;
}

} // namespace xfc
