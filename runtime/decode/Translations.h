// What translations of a line are told as: their text, and what the search's details ask for beside it.
#pragma once

#include "decode/Alignment.h"
#include "decode/Context.h"
#include "decode/ModelOptions.h"
#include "decode/Protected.h"
#include "decode/Search.h"
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

struct Translation {
  std::string text; // one line
  Hypothesis hypothesis;
  std::vector<std::string> tokens; // pieces, of token scores and soft alignments
  HardAlignment links;             // of hard alignments
  CrossAttention attention;        // of soft alignments
};

// The translations of a line, best first; none of an empty line.
struct TranslatedLine {
  Details details;
  std::vector<std::string> sourceTokens; // pieces as the encoder reads them, of soft alignments
  std::vector<Translation> found;
};

// A line as it was given, as encodeSource() encodes it, and the parts that its translations are to have; `where` names
// it in warnings. With a context, the ids are those of the line and of what precedes it.
struct SourceLine {
  std::string_view text;
  std::span<const int32_t> ids;
  std::span<const ProtectedPart> parts;
  std::string where;
  ContextTokens context = {};
};

// Throws Error if the model, or lines of this format, cannot have the details that a search with these options tells,
// or the attention or protected parts that it needs.
void requireDetails(const TranslationModel &model, const SearchOptions &options, Format format);

// Where replacing unknown tokens ends, if it is all that attention is computed for: with more tokens in the line, as
// the encoder reads it, or in a translation, and after the first translations of a line.
struct ReplacementLimits {
  size_t tokens = std::numeric_limits<size_t>::max(), translations = std::numeric_limits<size_t>::max();
};

// What a search with these options has found for a line. Links count the line's own tokens, without the frame that
// encodeSource() adds; the columns of the attention are all tokens. Alignments take a pass of the decoder for each
// translation, and so do unknown tokens that are replaced; those beyond the limits stay as they are. Warns of protected
// parts that a translation lacks. What is told has no tokens of the context, except that scores and log-probabilities
// are those of the search, which count its translation.
TranslatedLine translatedLine(const TranslationModel &model, const SourceLine &source,
                              std::vector<Hypothesis> hypotheses, const SearchOptions &options, Format format,
                              const ReplacementLimits &limits = {});
// The text of a translation that is still growing; of one whose unknown tokens are to be replaced, or that has
// protected parts of other tokens than their own, what precedes them.
std::string textSoFar(const TranslationModel &model, std::span<const int32_t> ids, const SearchOptions &options,
                      Format format, std::span<const ProtectedPart> parts = {});

// The fields `translation` and `hypotheses`, and between them `source_tokens` if there are any. Bytes that are not
// valid UTF-8 have to be replaced when it is written.
nlohmann::ordered_json jsonOf(const TranslatedLine &line);
// The details as text: each after a tab. Token scores are separated by blanks, and so are links i-j, and the rows of
// the attention, whose probabilities are separated by commas. Null: of an empty line.
std::string detailsAsText(const Details &details, const Translation *translation);
// The tokens, as the vocabulary writes them.
std::vector<std::string> piecesOf(const Vocabulary &vocabulary, std::span<const int32_t> ids);
// Numbers separated by `separator`.
std::string numberList(std::span<const double> numbers, char separator);

} // namespace xfc
