// SentencePiece models from anywhere: the library reads their tables without looking, so that is done here.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace xfc {

// What is wrong with the model, or "". A model that passes can be loaded and used on any text: its pieces are not empty
// and have finite scores, and no look-up in the tables of normalization leaves them.
std::string faultOfSentencePieceModel(std::string_view bytes);
// The same of a table of normalization alone.
std::string faultOfCharsMap(std::string_view map);
// Loads one. Throws Error saying what is wrong with it.
std::unique_ptr<sentencepiece::SentencePieceProcessor> loadSentencePieceModel(std::string_view bytes);

} // namespace xfc
