// Reads lexical shortlists, and lists the tokens that a translation may have.
#include "decode/Shortlist.h"
#include "support/Format.h"
#include "support/LineReader.h"
#include "support/Quoted.h"
#include <algorithm>
#include <sstream>
#include <unordered_map>

namespace xfc {

namespace {

using Weighted = std::pair<int32_t, float>; // a target token

// The most probable targets, best first.
std::vector<Weighted> bestOf(std::vector<Weighted> targets, int64_t most) {
  std::ranges::sort(targets, [](const Weighted &a, const Weighted &b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (static_cast<int64_t>(targets.size()) > most)
    targets.resize(static_cast<size_t>(most));
  return targets;
}

// The ids of a vocabulary's pieces.
class PieceIds {
public:
  explicit PieceIds(const Vocabulary &vocabulary) : name(vocabulary.name()) {
    for (int32_t id = 0; id < vocabulary.size(); ++id)
      ids.emplace(vocabulary.piece(id), id);
  }
  int32_t at(const std::string &piece, const std::string &where) const {
    const auto found = ids.find(piece);
    if (found == ids.end())
      throw Error(where + ": " + inQuotes(piece, 40) + " is no token of " + (name.empty() ? "the vocabulary" : name) +
                  "; expected a line TARGET SOURCE PROBABILITY of `translator shortlist`, for this vocabulary");
    return found->second;
  }

private:
  std::string name;
  std::unordered_map<std::string, int32_t> ids;
};

} // namespace

std::string textOf(const Lexicon &lexicon, const LoadedVocabularies &vocabularies, int64_t best) {
  std::string text;
  for (size_t source = 0; source < lexicon.size(); ++source) {
    const std::string piece = vocabularies.source->piece(static_cast<int32_t>(source));
    for (const auto &[target, share] : bestOf(lexicon[source], best))
      text += vocabularies.target->piece(target) + " " + piece + format(" %.6g\n", static_cast<double>(share));
  }
  return text;
}

Shortlist::Shortlist(const ShortlistOptions &options, const LoadedVocabularies &vocabularies)
    : first(static_cast<int32_t>(std::min(options.first, vocabularies.target->size()))),
      vocabulary(static_cast<int32_t>(vocabularies.target->size())), shared(vocabularies.source == vocabularies.target),
      best(static_cast<size_t>(vocabularies.source->size())) {
  const PieceIds sources(*vocabularies.source), targets(*vocabularies.target);
  Lexicon lexicon(best.size());
  LineReader reader(options.file);
  for (std::string line; reader.next(line);) {
    std::istringstream words(line);
    std::string target, source, rest;
    double share = 0;
    if (!(words >> target >> source >> share) || words >> rest || !(share >= 0))
      throw Error(reader.where() + ": " + inQuotes(line, 40) +
                  " is not a line TARGET SOURCE PROBABILITY, as `translator shortlist` writes it");
    constexpr const char *none = "NULL"; // in files of other programs: what comes from no token, or is left out
    if (target != none && source != none)
      lexicon[static_cast<size_t>(sources.at(source, reader.where()))].emplace_back(targets.at(target, reader.where()),
                                                                                    static_cast<float>(share));
  }
  if (reader.number() == 0)
    throw Error(options.file + ": is empty; expected the file that `translator shortlist` writes");
  for (size_t source = 0; source < best.size(); ++source)
    for (const auto &[target, share] : bestOf(std::move(lexicon[source]), options.best))
      best[source].push_back(target);
}

std::vector<int32_t> Shortlist::tokensFor(std::span<const int32_t> source, const Generation &generation,
                                          std::span<const int32_t> prefix, std::span<const Constraint> constraints,
                                          int32_t eos) const {
  std::vector<bool> listed(static_cast<size_t>(vocabulary));
  const auto list = [&](int32_t token) { listed[static_cast<size_t>(token)] = true; };
  list(eos);
  for (int32_t token = 0; token < first; ++token)
    list(token);
  for (const int32_t token : source) {
    std::ranges::for_each(best[static_cast<size_t>(token)], list);
    if (shared)
      list(token);
  }
  std::ranges::for_each(generation.forcedFirst, list);
  std::ranges::for_each(prefix, list);
  for (const std::span<const Constraint> those : {constraints, std::span(generation.requiredPhrases)})
    for (const Constraint &constraint : those)
      for (const std::vector<int32_t> &phrase : constraint)
        std::ranges::for_each(phrase, list);
  std::vector<int32_t> tokens;
  for (int32_t token = 0; token < vocabulary; ++token)
    if (listed[static_cast<size_t>(token)])
      tokens.push_back(token);
  return tokens;
}

} // namespace xfc
