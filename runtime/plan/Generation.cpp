// Validates the settings of a search.
#include "plan/GenerationSettings.h"
#include <algorithm>

namespace xfc {

std::optional<GenerationProblem> findProblem(const Generation &generation, int64_t vocabulary, int32_t pad,
                                             int32_t start, int32_t eos) {
  const Generation &g = generation;
  std::optional<GenerationProblem> problem;
  auto require = [&](bool holds, const std::string &where, const std::string &what) {
    if (!holds && !problem)
      problem = {where, what};
  };
  auto token = [&](int32_t id, const std::string &where) {
    require(id >= 0 && id < vocabulary, where,
            std::to_string(id) + " is not a token of a vocabulary of " + std::to_string(vocabulary) +
                "; expected 0 to " + std::to_string(vocabulary - 1));
  };
  auto item = [](const char *list, size_t i) { return std::string(list) + "[" + std::to_string(i) + "]"; };

  for (const GenerationSetting &setting : generationSettings())
    if (!problem)
      problem = rangeProblem(setting, g);
  require(g.beamGroups < 1 || g.beam % g.beamGroups == 0, "beam_groups",
          std::to_string(g.beamGroups) + " does not divide beam, " + std::to_string(g.beam) +
              ", into groups of equal size");
  require(g.beamGroups == 1 || g.diversity > 0, "beam_groups",
          std::to_string(g.beamGroups) + " groups without diversity write the same; expected a diversity above 0");
  require(g.maxLength == 0 || g.minLength <= g.maxLength, "min_length",
          std::to_string(g.minLength) + " is larger than max_length, " + std::to_string(g.maxLength));
  for (size_t i = 0; i < g.forcedFirst.size(); ++i) {
    token(g.forcedFirst[i], item("forced_first", i));
    require(g.forcedFirst[i] != pad && g.forcedFirst[i] != eos, item("forced_first", i),
            std::to_string(g.forcedFirst[i]) + " is " + (g.forcedFirst[i] == pad ? "pad" : "eos") +
                ", which occurs in no translation; expected a token of the text, or of a language");
  }
  require(g.maxLengthRatio == 0 || g.minLengthRatio <= g.maxLengthRatio, "min_length_ratio",
          valueOf(*findSetting("min_length_ratio"), g).dump() + " is larger than max_length_ratio, " +
              valueOf(*findSetting("max_length_ratio"), g).dump());
  require(g.maxLength == 0 || static_cast<int64_t>(g.forcedFirst.size()) <= g.maxLength, "forced_first",
          std::to_string(g.forcedFirst.size()) + " tokens, more than max_length, " + std::to_string(g.maxLength));
  for (size_t i = 0; i < g.suppress.size(); ++i) {
    token(g.suppress[i], item("suppress", i));
    require(g.suppress[i] != eos, item("suppress", i),
            std::to_string(g.suppress[i]) +
                " is eos, without which no translation ends; use min_length for longer ones");
    require(std::find(g.forcedFirst.begin(), g.forcedFirst.end(), g.suppress[i]) == g.forcedFirst.end(),
            item("suppress", i),
            std::to_string(g.suppress[i]) + " is forced by forced_first; expected it in only one of the two");
  }
  for (size_t i = 0; i < g.badSequences.size(); ++i) {
    const std::string where = item("bad_sequences", i);
    require(!g.badSequences[i].empty(), where, "is empty; expected at least one token id");
    for (size_t j = 0; j < g.badSequences[i].size(); ++j)
      token(g.badSequences[i][j], item(where.c_str(), j));
    require(g.badSequences[i] != std::vector<int32_t>{eos}, where,
            "is eos alone, without which no translation ends; use min_length for longer ones");
  }
  size_t tokens = 0;
  for (size_t i = 0; i < g.requiredPhrases.size(); ++i) {
    const std::string constraint = item("required_phrases", i);
    require(!g.requiredPhrases[i].empty(), constraint,
            "is empty; expected a phrase, or several of which one is enough");
    for (size_t j = 0; j < g.requiredPhrases[i].size(); ++j) {
      const std::vector<int32_t> &phrase = g.requiredPhrases[i][j];
      const std::string where = item(constraint.c_str(), j);
      require(!phrase.empty(), where, "is empty; expected at least one token id");
      for (size_t k = 0; k < phrase.size(); ++k) {
        token(phrase[k], item(where.c_str(), k));
        require(phrase[k] != pad && phrase[k] != start && phrase[k] != eos, item(where.c_str(), k),
                std::to_string(phrase[k]) + " is pad, start or eos, which no translation contains");
      }
      tokens += phrase.size();
    }
  }
  require(tokens <= mostConstraintTokens, "required_phrases",
          std::to_string(tokens) + " tokens; expected at most " + std::to_string(mostConstraintTokens) +
              " in all phrases together");
  return problem;
}

} // namespace xfc
