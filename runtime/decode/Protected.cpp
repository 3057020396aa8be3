// Parts of a source line that its translations must have as they are.
#include "decode/Protected.h"
#include "decode/Decoder.h"
#include "support/Error.h"
#include "support/Quoted.h"
#include "tokenizers/Utf8.h"
#include <algorithm>
#include <array>
#include <iterator>

namespace xfc {

namespace {

constexpr size_t shown = 40; // characters of a part in a message

// What pieces begin with for a blank: SentencePiece's mark, and that of byte pairs.
constexpr std::array<std::string_view, 2> blankMarks = {"\xE2\x96\x81", "\xC4\xA0"};

// The length of the mark with which a piece begins; 0: none.
size_t blankOf(std::string_view piece) {
  for (const std::string_view mark : blankMarks)
    if (piece.starts_with(mark))
      return mark.size();
  return 0;
}

bool hasAny(const std::vector<int32_t> &ids, std::initializer_list<int32_t> tokens) {
  return std::ranges::any_of(ids, [&](int32_t id) { return std::ranges::find(tokens, id) != tokens.end(); });
}

// The same text without the blank before it, which is in the piece at this place; empty if the vocabulary cannot write
// it so.
std::vector<int32_t> withoutBlank(const Vocabulary &target, std::vector<int32_t> ids, size_t place,
                                  std::string_view piece) {
  const std::string rest(piece.substr(blankOf(piece)));
  if (rest.empty()) {
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(place));
    return ids;
  }
  if (ids[place] == target.special().unk)
    return ids;
  const std::vector<int32_t> first = target.encode(rest, Format::Pieces, "");
  if (first.size() != 1 || first.front() == target.special().unk)
    return {};
  ids[place] = first.front();
  return ids;
}

// Finds the tokens of the part's text.
void findPhrases(const TranslationModel &model, ProtectedPart &part) {
  const Module &module = model.engine->module();
  const Vocabulary &target = *model.target;
  const auto add = [&](const std::vector<int32_t> &ids, bool spaced) {
    if (ids.empty() || hasAny(ids, {module.pad, module.start, module.eos}) ||
        std::ranges::find(part.phrases, ids) != part.phrases.end())
      return;
    part.exact &= target.decode(ids, Format::Text) == part.text;
    part.phrases.push_back(ids);
    part.spaced.push_back(spaced);
  };
  try {
    const std::vector<int32_t> ids = target.encode(part.text, Format::Text, "");
    if (!ids.empty()) {
      const size_t place = target.fromEnd() ? ids.size() - 1 : 0;
      const std::string first = target.pieces(ids, part.text, Format::Text)[place];
      const bool spaced = blankOf(first) > 0;
      add(ids, spaced);
      if (spaced)
        add(withoutBlank(target, ids, place, first), false);
      else
        add(target.encode(" " + part.text, Format::Text, ""), true);
    }
  } catch (const Error &) { // NOLINT(bugprone-empty-catch): there is no token for it, as `problem` says below
  }
  if (!part.exact && target.special().unk < 0)
    part.phrases.clear();
  if (part.phrases.empty())
    part.problem = "the vocabulary cannot write it";
}

} // namespace

std::vector<ProtectedPart> protectParts(const TranslationModel &model, std::string_view line,
                                        std::span<const int32_t> source, std::span<const int32_t> prefix,
                                        const SearchOptions &options, std::vector<Constraint> &constraints) {
  std::vector<ProtectedPart> parts;
  const std::string valid = validUtf8(line);
  std::vector<std::pair<size_t, size_t>> all;
  for (const RegularExpression &expression : options.protect)
    try {
      const auto matches = expression.matches(valid);
      all.insert(all.end(), matches.begin(), matches.end());
    } catch (const Error &error) {
      throw Error("--protect: " + std::string(error.what()));
    }
  std::ranges::sort(
      all, [](const auto &a, const auto &b) { return a.first != b.first ? a.first < b.first : a.second > b.second; });
  // Why the search cannot meet these constraints; empty: it can.
  const auto problemOf = [&](const std::vector<Constraint> &wanted, const ProtectedPart &part) -> std::string {
    size_t tokens = 0;
    for (const Constraint &constraint : wanted)
      for (const std::vector<int32_t> &phrase : constraint)
        tokens += phrase.size();
    if (tokens > mostConstraintTokens)
      return "with it, the constraints have more than " + std::to_string(mostConstraintTokens) + " tokens";
    const std::unique_ptr<const Constraints> built = constraintsFor(options, wanted);
    SearchSentence sentence = sentenceFor(options, 0, static_cast<int64_t>(source.size()), prefix,
                                          model.engine->module().maxTargetLength, built.get());
    sentence.where = inQuotes(part.text, shown);
    try {
      checkConstraints(sentence, options);
    } catch (const Error &error) {
      return error.what();
    }
    return "";
  };
  size_t end = 0; // of the last part
  for (const auto &[from, to] : all) {
    const std::string_view text = withoutOuterSpace(std::string_view(valid).substr(from, to - from));
    if (from < end || text.empty())
      continue;
    end = to;
    ProtectedPart &part = parts.emplace_back(std::string(text));
    if (parts.size() > mostProtectedParts) {
      part.problem = "only " + std::to_string(mostProtectedParts) + " parts of a line are protected";
      continue;
    }
    findPhrases(model, part);
    if (part.phrases.empty())
      continue;
    constraints.push_back(part.phrases);
    part.problem = problemOf(constraints, part);
    if (!part.problem.empty()) {
      part.phrases.clear();
      constraints.pop_back();
    }
  }
  return parts;
}

void placeParts(const TranslationModel &model, std::span<const ProtectedPart> parts, size_t forced,
                std::vector<int32_t> &ids, std::vector<std::string> &written) {
  struct Place {
    size_t begin, end;
    std::string text;
  };
  std::vector<Place> places;
  std::vector<ProtectedPart> order;
  std::ranges::copy_if(parts, std::back_inserter(order), [](const ProtectedPart &part) { return !part.exact; });
  // The longest first: a shorter one, whose tokens may be a part of its own, leaves it its place.
  std::ranges::stable_sort(order, std::ranges::greater(), [](const ProtectedPart &part) {
    return part.phrases.empty() ? 0 : part.phrases.front().size();
  });
  for (const ProtectedPart &part : order) {
    bool placed = false;
    for (size_t begin = forced; begin < ids.size() && !placed; ++begin)
      for (size_t i = 0; i < part.phrases.size() && !placed; ++i) {
        const std::vector<int32_t> &phrase = part.phrases[i];
        const size_t end = begin + phrase.size();
        placed =
            std::ranges::equal(std::span(ids).subspan(begin, std::min(phrase.size(), ids.size() - begin)), phrase) &&
            std::ranges::none_of(places, [&](const Place &other) { return begin < other.end && other.begin < end; });
        if (placed)
          places.push_back({begin, end, std::string(part.spaced[i] ? blankMarks.front() : "") + part.text});
      }
  }
  if (places.empty())
    return;
  std::ranges::sort(places, {}, &Place::begin);
  const int32_t unk = model.target->special().unk;
  if (written.empty()) // unknown tokens are written as they are without anything for them
    written.assign(ids.size(), model.target->decode({unk}, Format::Text));
  std::vector<int32_t> newIds;
  std::vector<std::string> newWritten;
  size_t at = 0;
  const auto copyTo = [&](size_t end) {
    newIds.insert(newIds.end(), ids.begin() + static_cast<std::ptrdiff_t>(at),
                  ids.begin() + static_cast<std::ptrdiff_t>(end));
    newWritten.insert(newWritten.end(), written.begin() + static_cast<std::ptrdiff_t>(at),
                      written.begin() + static_cast<std::ptrdiff_t>(end));
  };
  for (Place &place : places) {
    copyTo(place.begin);
    newIds.push_back(unk);
    newWritten.push_back(std::move(place.text));
    at = place.end;
  }
  copyTo(ids.size());
  ids = std::move(newIds);
  written = std::move(newWritten);
}

bool beginsInexact(std::span<const ProtectedPart> parts, int32_t id) {
  return std::ranges::any_of(parts, [&](const ProtectedPart &part) {
    return !part.exact && std::ranges::any_of(part.phrases, [&](const auto &phrase) { return phrase.front() == id; });
  });
}

std::vector<const ProtectedPart *> lackingParts(std::span<const ProtectedPart> parts, std::string_view translation) {
  std::vector<const ProtectedPart *> order, lacking;
  for (const ProtectedPart &part : parts)
    order.push_back(&part);
  // The longest first: a shorter one that is part of it leaves it its place.
  std::ranges::stable_sort(order, std::ranges::greater(), [](const ProtectedPart *part) { return part->text.size(); });
  std::vector<bool> taken(translation.size());
  for (const ProtectedPart *part : order) {
    bool found = false;
    for (size_t at = 0; !found && (at = translation.find(part->text, at)) != std::string_view::npos; ++at) {
      const auto begin = taken.begin() + static_cast<std::ptrdiff_t>(at);
      const auto end = begin + static_cast<std::ptrdiff_t>(part->text.size());
      found = std::find(begin, end, true) == end;
      if (found)
        std::fill(begin, end, true);
    }
    if (!found)
      lacking.push_back(part);
  }
  return lacking;
}

} // namespace xfc
