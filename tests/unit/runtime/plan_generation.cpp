// Tests the table of search settings.
#include "plan/GenerationSettings.h"
#include "support/Error.h"
#include <gtest/gtest.h>
#include <set>

using namespace xfc;
using Json = nlohmann::json;

namespace {

// A value that is not the default.
Json otherValue(const GenerationSetting &setting) {
  struct {
    Json operator()(const GenerationSetting::Whole &range) const { return range.least + 2; }
    Json operator()(const GenerationSetting::Number &range) const { return (range.least + range.most) / 4; }
    Json operator()(const GenerationSetting::Choice &choice) const {
      const Generation usual;
      const std::string word = choice.words[choice.get(usual) == 0 ? 1 : 0];
      return word == "true" ? Json(true) : word == "false" ? Json(false) : Json(word);
    }
    Json operator()(const GenerationSetting::Tokens &) const { return {7}; }
    Json operator()(const GenerationSetting::Sequences &) const { return {{4, 5}, {6}}; }
    Json operator()(const GenerationSetting::Constraints &) const { return Json::parse("[[[4, 5], [6]], [[7]]]"); }
  } other;
  return std::visit(other, setting.value);
}

} // namespace

TEST(GenerationSettings, AreReadShownAndCopied) {
  std::set<std::string> names;
  for (const GenerationSetting &setting : generationSettings()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_EQ(findSetting(setting.name), &setting);
    const Generation usual;
    Generation changed, copied;
    EXPECT_FALSE(rangeProblem(setting, usual)) << setting.name;
    const Json value = otherValue(setting);
    EXPECT_FALSE(readSetting(setting, value, changed)) << setting.name;
    EXPECT_NE(changed, usual) << setting.name;
    EXPECT_EQ(valueOf(setting, changed), value) << setting.name;
    EXPECT_FALSE(rangeProblem(setting, changed)) << setting.name;
    copySetting(setting, copied, changed);
    EXPECT_EQ(copied, changed) << setting.name;
    copySetting(setting, copied, usual);
    EXPECT_EQ(copied, usual) << setting.name;
  }
  EXPECT_EQ(findSetting("beams"), nullptr);
  EXPECT_EQ(optionOf(*findSetting("length_penalty_form")), "--length-penalty-form");
}

TEST(GenerationSettings, RefuseValuesOfAnotherKindOrOutsideOfTheirRange) {
  for (const GenerationSetting &setting : generationSettings())
    for (const Json &value :
         std::vector<Json>{"x", nullptr, Json::object(), 1e300, -1e300, 0.25, {{-1}}, {4294967296}}) {
      const bool fraction = value == 0.25 && std::holds_alternative<GenerationSetting::Number>(setting.value);
      Generation generation;
      const std::optional<GenerationProblem> problem = readSetting(setting, value, generation);
      ASSERT_EQ(!problem, fraction) << setting.name << " " << value;
      EXPECT_TRUE(!problem || problem->where.starts_with(setting.name)) << problem->where;
    }
  Generation generation;
  EXPECT_EQ(readSetting(*findSetting("bad_sequences"), {{1}, {2, -3}}, generation)->where, "bad_sequences[1][1]");
  generation.topP = 0;
  EXPECT_EQ(findProblem(generation, 9, 0, 2, 3)->what, "expected a number above 0, at most 1, found 0.0");
  generation = {.temperature = std::numeric_limits<double>::quiet_NaN()};
  EXPECT_EQ(findProblem(generation, 9, 0, 2, 3)->where, "temperature");
  generation = {.requiredPhrases = {{std::vector<int32_t>(mostConstraintTokens - 1, 4), {4}}}};
  EXPECT_FALSE(findProblem(generation, 9, 0, 2, 3));
  generation.requiredPhrases.push_back({{5}});
  EXPECT_EQ(findProblem(generation, 9, 0, 2, 3)->what, "4097 tokens; expected at most 4096 in all phrases together");
}

TEST(GenerationSettings, AreThoseOfAnObject) {
  EXPECT_EQ(generationIn(Json::object()), Generation());
  EXPECT_EQ(generationIn(Json::parse(R"({"beam": 4, "length_penalty": 1, "length_penalty_form": "power",
    "early_stopping": false, "max_length": 9, "min_length": 2, "at_max_length": "cut", "forced_first": [4],
    "suppress": [5], "bad_sequences": [[4, 1], [1]], "required_phrases": [[[4], [1, 1]]], "no_repeat_ngram": 3,
    "renormalize": true})")),
            (Generation{.beam = 4,
                        .lengthPenalty = 1,
                        .penaltyForm = Generation::PenaltyForm::Power,
                        .earlyStopping = Generation::EarlyStopping::No,
                        .atMaxLength = Generation::AtMaxLength::Cut,
                        .maxLength = 9,
                        .minLength = 2,
                        .forcedFirst = {4},
                        .suppress = {5},
                        .badSequences = {{4, 1}, {1}},
                        .requiredPhrases = {{{4}, {1, 1}}},
                        .noRepeatNgram = 3,
                        .renormalize = true}));
  const Generation other = generationIn(Json::parse(R"({"early_stopping": "never", "at_max_length": "forced_eos"})"));
  EXPECT_EQ(other.earlyStopping, Generation::EarlyStopping::Never);
  EXPECT_EQ(other.atMaxLength, Generation::AtMaxLength::ForcedEos);
  for (const char *broken : {R"({"beam": "4"})", R"({"beams": 4})", R"({"early_stopping": "yes"})", R"([1])"})
    EXPECT_THROW(generationIn(Json::parse(broken)), Error) << broken;
}
