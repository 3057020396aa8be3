// Validates untrusted SentencePiece models, because the library reads their tables without bounds checks, and segments
// text with them.
#pragma once

#include "tokenizers/Tokenizer.h"
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace xfc {

// Says what is wrong with the model, or returns "". A model that passes can be loaded and used on any text: its pieces
// are non-empty and have finite scores, and no lookup in the normalization tables leaves them.
std::string faultOfSentencePieceModel(std::string_view bytes);
// Says what is wrong with a normalization table, or returns "".
std::string faultOfCharsMap(std::string_view map);
// Whether a valid model splits text by the probabilities of its pieces, and not by merging pairs.
bool isUnigramModel(std::string_view bytes);
// Validates and loads a model. Throws an Error that says what is wrong with it.
std::unique_ptr<sentencepiece::SentencePieceProcessor> loadSentencePieceModel(std::string_view bytes);

// Segments text into the model's ids (Piece = int) or pieces (std::string); `sampling` may be null. Throws Error.
template <typename Piece>
std::vector<Piece> segmentText(const sentencepiece::SentencePieceProcessor &model, std::string_view text,
                               const SegmentationSampling *sampling);
// Text in which blanks are written as in pieces, with plain ones.
std::string withBlanks(std::string_view text);
// A piece without the sign of a blank that it begins with.
std::string withoutBlank(std::string_view piece);
// Unigram models and byte pair encoding can sample; models of words or characters cannot.
bool canSample(const sentencepiece::SentencePieceProcessor &model);

} // namespace xfc
