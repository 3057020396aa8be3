// How a model's translations are searched for unless a command line says otherwise: `generation` of model.json.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xfc {

// Phrases, of which a translation must contain one. A phrase is a sequence of at least one token, and none of its
// tokens is pad, start or eos.
using Constraint = std::vector<std::vector<int32_t>>;

inline constexpr size_t mostConstraintTokens = 4096; // in all phrases of a sentence's constraints

struct Generation {
  // The divisor of a log-probability, where n counts every token after start: forced ones, text, and eos.
  enum class PenaltyForm : uint8_t {
    Offset, // ((5+n)/6)^lengthPenalty
    Power,  // n^lengthPenalty
  };
  // When a beam of two or more ends a sentence, once `beam` of its hypotheses have finished.
  enum class EarlyStopping : uint8_t {
    No,    // if the best live one, ended at its present length, would score no better than the worst of the best `beam`
    Yes,   // at once
    Never, // like No; but if lengthPenalty is above 0, with the live one ended at maxLength
  };
  // The treatment of a hypothesis of maxLength tokens.
  enum class AtMaxLength : uint8_t {
    Eos,       // eos ends it, and counts with its log-probability
    ForcedEos, // eos ends it, and counts as certain: log-probability 0
    Cut,       // it ends as it is, without eos
  };

  int64_t beam = 5; // 1: greedy
  double lengthPenalty = 0.6;
  PenaltyForm penaltyForm = PenaltyForm::Offset;
  EarlyStopping earlyStopping = EarlyStopping::Yes;
  double patience = 1; // how many beams of hypotheses have finished when it ends
  // Groups of equal size that a beam consists of, and what a token loses for each hypothesis of earlier groups that has
  // it at the same place.
  int64_t beamGroups = 1;
  double diversity = 0.5;
  double coveragePenalty = 0; // what the attention to the source's tokens counts in a score
  AtMaxLength atMaxLength = AtMaxLength::Eos;
  int64_t maxLength = 0;     // tokens without eos; 0: twice the source plus 10
  double maxLengthRatio = 0; // of the source's tokens; 0: no limit
  int64_t minLength = 0;
  double minLengthRatio = 0;
  std::vector<int32_t> forcedFirst;               // what every target begins with, each with log-probability 0
  std::vector<int32_t> suppress;                  // never written
  std::vector<std::vector<int32_t>> badSequences; // the last token of each is not written after the others
  std::vector<Constraint> requiredPhrases;        // every translation meets them, beside those of its sentence
  int64_t noRepeatNgram = 0;                      // no sequence of this many tokens is written twice; 0: no limit
  double repetitionPenalty = 1;                   // multiplies the log-probabilities of tokens that are there already
  bool renormalize = false; // the probabilities of the tokens that may come next add up to 1: what may not has none

  // Sampling raises the probabilities of tokens to the power 1/temperature. Each of the settings after that leaves out
  // some tokens, as sampleToken() in decode/Candidates.h states.
  double temperature = 1;
  int64_t topK = 0; // 0: all
  double topP = 1;
  double minP = 0;
  double typicalP = 1;
  double epsilonCutoff = 0;

  bool operator==(const Generation &) const = default;
};

// GenerationSettings.h has a table of their names, values and meanings. The words of enumerators, in their order:
inline constexpr std::array<const char *, 2> penaltyForms = {"offset", "power"};
inline constexpr std::array<const char *, 3> earlyStoppings = {"false", "true", "never"};
inline constexpr std::array<const char *, 3> lengthEnds = {"eos", "forced_eos", "cut"};

inline constexpr int64_t mostHypotheses = 1 << 16; // beyond any search's needs; memory sizes still do not overflow
inline constexpr int64_t mostTokens = 1 << 20;     // of a translation
inline constexpr double mostLengthPenalty = 40;    // so that n^40 times a log-probability is finite for every n
inline constexpr double mostPatience = 100, mostDiversity = 100, mostCoveragePenalty = 100, mostLengthRatio = 100,
                        mostRepetitionPenalty = 100, leastTemperature = 1e-6, mostTemperature = 1000;

// The first thing that is wrong, for a target vocabulary of this size with these tokens: where, by the names of
// model.json ("suppress[1]"), and what ("7 is eos, without which no translation ends").
struct GenerationProblem {
  std::string where, what;
};
std::optional<GenerationProblem> findProblem(const Generation &generation, int64_t vocabulary, int32_t pad,
                                             int32_t start, int32_t eos);

} // namespace xfc
