// The settings of `generation` in one table.
#include "plan/GenerationSettings.h"
#include "support/Json.h"
#include <algorithm>
#include <limits>
#include <sstream>

namespace xfc {
namespace {

using Json = nlohmann::json;
using Setting = GenerationSetting;

// A choice among the enumerators of a member, which are numbered from 0, or the values of a bool.
template <auto Member> Setting::Choice choice(std::span<const char *const> words) {
  return {words, [](const Generation &generation) { return static_cast<size_t>(generation.*Member); },
          [](Generation &generation, size_t word) {
            generation.*Member = static_cast<std::remove_reference_t<decltype(generation.*Member)>>(word);
          }};
}

constexpr const char *truth[] = {"false", "true"};

const Setting table[] = {
    {"beam",
     Setting::Whole{&Generation::beam, 1, mostHypotheses},
     "live hypotheses per sentence; 1: greedy search",
     {"num_beams", "beam_size", "beam-size"}},
    {"length_penalty",
     Setting::Number{&Generation::lengthPenalty, -mostLengthPenalty, mostLengthPenalty},
     "A in score = log-probability / ((5+n)/6)^A, or / n^A; n counts all tokens after the start token, including eos",
     {"length_penalty", "length_penalty", "normalize"},
     Setting::Subject::Lengths},
    {"length_penalty_form",
     choice<&Generation::penaltyForm>(penaltyForms),
     "offset: ((5+n)/6)^A; power: n^A",
     {},
     Setting::Subject::Lengths},
    {"early_stopping",
     choice<&Generation::earlyStopping>(earlyStoppings),
     "whether a beam ends once it has finished as many translations as it is wide. true: it does; false: not while the "
     "best live one, at its present length, scores better than the worst of those; never: not while it could do so at "
     "max_length",
     {"early_stopping"}},
    {"patience",
     Setting::Number{&Generation::patience, 0, mostPatience, true},
     "P: a beam has finished enough translations when it has finished P times as many as it is wide (Kasai et al. "
     "2022)",
     {nullptr, "patience"}},
    {"beam_groups",
     Setting::Whole{&Generation::beamGroups, 1, mostHypotheses},
     "G: a beam consists of G groups of equal size, each of which avoids the tokens that those before it choose "
     "(diverse "
     "beam search, Vijayakumar et al. 2016)",
     {"num_beam_groups"}},
    {"diversity",
     Setting::Number{&Generation::diversity, 0, mostDiversity},
     "beam_groups: what the log-probability of a token loses for each hypothesis of an earlier group that chooses it "
     "in "
     "the same step",
     {"diversity_penalty"}},
    {"coverage_penalty",
     Setting::Number{&Generation::coveragePenalty, 0, mostCoveragePenalty},
     "B: the score of a translation that has ended gains B times the sum of log(min(a, 1)), where a is the attention "
     "that "
     "a token of the source has received in all (Wu et al. 2016)",
     {nullptr, "coverage_penalty"}},
    {"max_length",
     Setting::Whole{&Generation::maxLength, 0, mostTokens},
     "maximum number of tokens in a translation, without start and eos; 0: twice the source's plus 10, but no more "
     "than the model's max_length",
     {"max_new_tokens", "max_decoding_length"},
     Setting::Subject::Lengths},
    {"max_length_ratio",
     Setting::Number{&Generation::maxLengthRatio, 0, mostLengthRatio},
     "maximum number of tokens in a translation for each token of the source, in place of twice the source's plus 10, "
     "and no more than max_length unless that is 0; 0: no such limit",
     {nullptr, nullptr, "max-length-factor"},
     Setting::Subject::Lengths},
    {"min_length",
     Setting::Whole{&Generation::minLength, 0, mostTokens},
     "minimum number of tokens in a translation",
     {"min_new_tokens", "min_decoding_length"},
     Setting::Subject::Lengths},
    {"min_length_ratio",
     Setting::Number{&Generation::minLengthRatio, 0, mostLengthRatio},
     "minimum number of tokens in a translation for each token of the source, if that is more than min_length",
     {},
     Setting::Subject::Lengths},
    {"at_max_length",
     choice<&Generation::atMaxLength>(lengthEnds),
     "how a translation of the maximum length ends. eos: with eos, whose probability counts; forced_eos: with eos, "
     "which counts as certain; cut: without eos",
     {},
     Setting::Subject::Lengths},
    {"forced_first",
     Setting::Tokens{&Generation::forcedFirst},
     "tokens that every translation begins with, which count as certain, such as a language; text output leaves them "
     "out",
     {"forced_bos_token_id"},
     Setting::Subject::Tokens},
    {"suppress",
     Setting::Tokens{&Generation::suppress},
     "tokens that are never written; pad and the start token never are",
     {"suppress_tokens", "suppress_sequences"},
     Setting::Subject::Tokens},
    {"bad_sequences",
     Setting::Sequences{&Generation::badSequences},
     "sequences of tokens: the last token of one is not written after its other tokens, the first of which may be the "
     "start token",
     {"bad_words_ids", "suppress_sequences"},
     Setting::Subject::Tokens},
    {"required_phrases",
     Setting::Constraints{&Generation::requiredPhrases},
     "constraints that every translation meets, beside those of its line: each is one or more phrases, of which it "
     "contains one",
     {"force_words_ids"},
     Setting::Subject::Tokens},
    {"no_repeat_ngram",
     Setting::Whole{&Generation::noRepeatNgram, 0, mostTokens},
     "never write the same N tokens in a row twice; 0: no restriction",
     {"no_repeat_ngram_size", "no_repeat_ngram_size"},
     Setting::Subject::Tokens},
    {"repetition_penalty",
     Setting::Number{&Generation::repetitionPenalty, 0, mostRepetitionPenalty, true},
     "R: the log-probability of a token that a translation has already, the start token included, is multiplied by R; "
     "above 1, repetition becomes less likely (Keskar et al. 2019)",
     {"repetition_penalty", "repetition_penalty"},
     Setting::Subject::Tokens},
    {"renormalize",
     choice<&Generation::renormalize>(truth),
     "whether the probabilities of the tokens that may come next add up to 1. true: they are divided by their sum, so "
     "that those of suppressed tokens and others that may not come do not count, and what is forced is certain; false: "
     "each token has the probability that the model gives it",
     {"renormalize_logits"},
     Setting::Subject::Tokens},
    {"temperature",
     Setting::Number{&Generation::temperature, leastTemperature, mostTemperature},
     "above 1 makes the distribution flatter, below 1 sharper",
     {"temperature", "sampling_temperature"},
     Setting::Subject::Sampling},
    {"top_k",
     Setting::Whole{&Generation::topK, 0, mostTokens},
     "draw from the K most probable tokens; 0: from all",
     {"top_k", "sampling_topk"},
     Setting::Subject::Sampling},
    {"top_p",
     Setting::Number{&Generation::topP, 0, 1, true},
     "draw from the smallest set of most probable tokens whose probabilities add up to P (Holtzman et al. 2020)",
     {"top_p", "sampling_topp"},
     Setting::Subject::Sampling},
    {"min_p",
     Setting::Number{&Generation::minP, 0, 1},
     "draw from the tokens that are at least P times as probable as the most probable one (Nguyen et al. 2024)",
     {"min_p"},
     Setting::Subject::Sampling},
    {"typical_p",
     Setting::Number{&Generation::typicalP, 0, 1, true},
     "draw from the tokens whose information is nearest to the entropy, the fewest whose probabilities add up to P "
     "(Meister et al. 2023)",
     {"typical_p"},
     Setting::Subject::Sampling},
    {"epsilon_cutoff",
     Setting::Number{&Generation::epsilonCutoff, 0, 1},
     "draw from the tokens whose probability is at least E, or else the most probable one (Hewitt et al. 2022)",
     {"epsilon_cutoff"},
     Setting::Subject::Sampling}};

std::string shown(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

GenerationProblem unlike(const std::string &where, const std::string &expected, const Json &found) {
  return {where, "expected " + expected + ", found " + shownJson(found)};
}

std::string item(const std::string &list, size_t i) { return list + "[" + std::to_string(i) + "]"; }

std::optional<GenerationProblem> readTokens(const std::string &where, const Json &value, std::vector<int32_t> &ids) {
  if (!value.is_array())
    return unlike(where, "a list of token ids", value);
  ids.clear();
  for (size_t i = 0; i < value.size(); ++i) {
    constexpr double most = std::numeric_limits<int32_t>::max();
    if (!value[i].is_number_integer() || value[i].get<double>() < 0 || value[i].get<double>() > most)
      return unlike(item(where, i), "a whole number from 0 to 2147483647", value[i]);
    ids.push_back(value[i].get<int32_t>());
  }
  return std::nullopt;
}

std::optional<GenerationProblem> readSequences(const std::string &where, const std::string &expected, const Json &value,
                                               std::vector<std::vector<int32_t>> &sequences) {
  if (!value.is_array())
    return unlike(where, expected, value);
  sequences.assign(value.size(), {});
  for (size_t i = 0; i < value.size(); ++i)
    if (auto problem = readTokens(item(where, i), value[i], sequences[i]))
      return problem;
  return std::nullopt;
}

// How a word of a choice stands in JSON.
Json jsonOf(const std::string &word) {
  return word == "true" ? Json(true) : word == "false" ? Json(false) : Json(word);
}

// Whole numbers are checked as doubles: in JSON they may exceed 64 bits, and 8.0 is one.
bool isWhole(const Json &value, int64_t least, int64_t most) {
  if (!value.is_number())
    return false;
  const double number = value.get<double>();
  return number == std::floor(number) && number >= static_cast<double>(least) && number <= static_cast<double>(most);
}

bool isWithin(const Setting::Number &range, double number) {
  return (range.above ? number > range.least : number >= range.least) && number <= range.most;
}

} // namespace

std::span<const GenerationSetting> generationSettings() { return table; }

const GenerationSetting *findSetting(std::string_view name) {
  const auto *const found = std::ranges::find_if(table, [&](const Setting &setting) { return setting.name == name; });
  return found == std::end(table) ? nullptr : found;
}

std::string optionOf(const GenerationSetting &setting) {
  std::string option = std::string("--") + setting.name;
  std::ranges::replace(option, '_', '-');
  return option;
}

std::string expectedOf(const GenerationSetting &setting) {
  struct {
    std::string operator()(const Setting::Whole &range) const {
      return "a whole number from " + std::to_string(range.least) + " to " + std::to_string(range.most);
    }
    std::string operator()(const Setting::Number &range) const {
      return (range.above ? "a number above " : "a number from ") + shown(range.least) +
             (range.above ? ", at most " : " to ") + shown(range.most);
    }
    std::string operator()(const Setting::Choice &choice) const {
      std::string words;
      for (const char *const &word : choice.words)
        words += (&word == &choice.words.front()  ? ""
                  : &word == &choice.words.back() ? " or "
                                                  : ", ") +
                 jsonOf(word).dump();
      return words;
    }
    std::string operator()(const Setting::Tokens &) const { return "a list of token ids"; }
    std::string operator()(const Setting::Sequences &) const { return "a list of lists of token ids"; }
    std::string operator()(const Setting::Constraints &) const {
      return "a list of constraints, each a list of phrases, each a list of token ids";
    }
  } words;
  return std::visit(words, setting.value);
}

std::optional<GenerationProblem> readSetting(const GenerationSetting &setting, const nlohmann::json &value,
                                             Generation &generation) {
  const std::string name = setting.name;
  const auto wrong = [&] { return unlike(name, expectedOf(setting), value); };
  if (const auto *range = std::get_if<Setting::Whole>(&setting.value)) {
    if (!isWhole(value, range->least, range->most))
      return wrong();
    generation.*range->member = static_cast<int64_t>(value.get<double>());
  } else if (const auto *range = std::get_if<Setting::Number>(&setting.value)) {
    if (!value.is_number() || !isWithin(*range, value.get<double>()))
      return wrong();
    generation.*range->member = value.get<double>();
  } else if (const auto *choice = std::get_if<Setting::Choice>(&setting.value)) {
    const auto found = std::ranges::find_if(choice->words, [&](const char *word) { return value == jsonOf(word); });
    if (found == choice->words.end())
      return wrong();
    choice->set(generation, static_cast<size_t>(found - choice->words.begin()));
  } else if (const auto *tokens = std::get_if<Setting::Tokens>(&setting.value)) {
    return readTokens(name, value, generation.*tokens->member);
  } else if (const auto *sequences = std::get_if<Setting::Sequences>(&setting.value)) {
    return readSequences(name, expectedOf(setting), value, generation.*sequences->member);
  } else if (const auto *constraints = std::get_if<Setting::Constraints>(&setting.value)) {
    if (!value.is_array())
      return wrong();
    std::vector<Constraint> &list = generation.*constraints->member;
    list.assign(value.size(), {});
    for (size_t i = 0; i < value.size(); ++i)
      if (auto problem = readSequences(item(name, i), "a list of phrases, each a list of token ids", value[i], list[i]))
        return problem;
  }
  return std::nullopt;
}

Generation generationIn(const nlohmann::json &settings) {
  Generation generation;
  for (const auto &[key, value] : settings.items()) {
    const GenerationSetting *setting = findSetting(key);
    if (!setting)
      throw Error(key + ": an unknown key");
    if (const std::optional<GenerationProblem> problem = readSetting(*setting, value, generation))
      throw Error(problem->where + ": " + problem->what);
  }
  return generation;
}

nlohmann::json valueOf(const GenerationSetting &setting, const Generation &generation) {
  return std::visit(
      [&]<typename Kind>(const Kind &kind) -> Json {
        if constexpr (std::is_same_v<Kind, Setting::Choice>)
          return jsonOf(kind.words[kind.get(generation)]);
        else
          return generation.*kind.member;
      },
      setting.value);
}

bool isUsual(const GenerationSetting &setting, const Generation &generation) {
  return valueOf(setting, generation) == valueOf(setting, Generation());
}

void copySetting(const GenerationSetting &setting, Generation &to, const Generation &from) {
  std::visit(
      [&]<typename Kind>(const Kind &kind) {
        if constexpr (std::is_same_v<Kind, Setting::Choice>)
          kind.set(to, kind.get(from));
        else
          to.*kind.member = from.*kind.member;
      },
      setting.value);
}

std::optional<GenerationProblem> rangeProblem(const GenerationSetting &setting, const Generation &generation) {
  bool holds = true;
  if (const auto *range = std::get_if<Setting::Whole>(&setting.value))
    holds = generation.*range->member >= range->least && generation.*range->member <= range->most;
  else if (const auto *range = std::get_if<Setting::Number>(&setting.value))
    holds = isWithin(*range, generation.*range->member);
  if (holds)
    return std::nullopt;
  return unlike(setting.name, expectedOf(setting), valueOf(setting, generation));
}

} // namespace xfc
