// Reads `generation` of model.json into the default settings of an executable's searches.
#include "Generation.h"
#include <algorithm>
#include <limits>

namespace xfc {
namespace {

std::vector<int32_t> idsOf(const JsonValue &json) {
  std::vector<int32_t> ids;
  for (const JsonValue &id : json.elements())
    ids.push_back(static_cast<int32_t>(id.integer(0, std::numeric_limits<int32_t>::max())));
  return ids;
}

template <typename Enum, size_t N>
Enum choiceOf(const JsonValue &json, const std::array<const char *, N> &names, const std::string &what) {
  const std::string name = json.oneOf({names.begin(), names.end()}, what);
  return static_cast<Enum>(std::find(names.begin(), names.end(), name) - names.begin());
}

} // namespace

Generation readGeneration(const JsonValue &json, int64_t vocabulary, int32_t pad, int32_t eos) {
  Generation generation;
  json.onlyKeys({"beam", "length_penalty", "length_penalty_form", "early_stopping", "max_length", "min_length",
                 "at_max_length", "forced_first", "suppress", "bad_sequences", "no_repeat_ngram", "renormalize"},
                "generation");
  if (auto beam = json.find("beam"))
    generation.beam = static_cast<int32_t>(beam->integer(1, mostHypotheses));
  if (auto penalty = json.find("length_penalty"))
    generation.lengthPenalty = penalty->number(-mostLengthPenalty, mostLengthPenalty);
  if (auto form = json.find("length_penalty_form"))
    generation.penaltyForm = choiceOf<Generation::PenaltyForm>(*form, penaltyForms, "form of the length penalty");
  if (auto stopping = json.find("early_stopping")) {
    using enum Generation::EarlyStopping;
    if (stopping->isBoolean())
      generation.earlyStopping = stopping->boolean() ? Yes : No;
    else if (stopping->isString() && stopping->string() == "never")
      generation.earlyStopping = Never;
    else
      stopping->fail("expected true, false or \"never\", found " + stopping->shown());
  }
  if (auto most = json.find("max_length"))
    generation.maxLength = most->integer(0, mostTokens);
  if (auto fewest = json.find("min_length"))
    generation.minLength = fewest->integer(0, mostTokens);
  if (auto end = json.find("at_max_length"))
    generation.atMaxLength = choiceOf<Generation::AtMaxLength>(*end, lengthEnds, "end of a translation");
  if (auto forced = json.find("forced_first"))
    generation.forcedFirst = idsOf(*forced);
  if (auto never = json.find("suppress"))
    generation.suppress = idsOf(*never);
  if (auto sequences = json.find("bad_sequences"))
    for (const JsonValue &sequence : sequences->elements())
      generation.badSequences.push_back(idsOf(sequence));
  if (auto size = json.find("no_repeat_ngram"))
    generation.noRepeatNgram = size->integer(0, mostTokens);
  if (auto renormalize = json.find("renormalize"))
    generation.renormalize = renormalize->boolean();
  if (std::optional<GenerationProblem> problem = findProblem(generation, vocabulary, pad, eos))
    json.failInside(problem->where, problem->what);
  return generation;
}

} // namespace xfc
