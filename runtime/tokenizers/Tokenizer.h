// Text into token ids and back, whatever kind of tokenizer a model was trained with.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// Ids that stand before and after the tokens of a line: NLLB's language and eos, BART's <s> and </s>.
struct Frame {
  std::vector<int32_t> prefix, suffix;
};

// Ids with a meaning of their own; -1 where there is none, or where the file does not say.
struct SpecialTokens {
  int32_t pad = -1, unk = -1, bos = -1, eos = -1;
};

class Tokenizer {
public:
  virtual ~Tokenizer() = default;
  // One more than the largest id.
  virtual int64_t size() const = 0;
  // The tokens of a line of UTF-8, without the frame; a byte that is no valid UTF-8 counts as U+FFFD. The time is
  // linear in the line's length, or n log n. Throws Error for what the tokenizer has no token for.
  virtual std::vector<int32_t> encode(std::string_view line) const = 0;
  // Special tokens have no text.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  virtual std::string piece(int32_t id) const = 0; // of 0..size()-1
  // The unknown token's for a piece that is none; -1 where there is no unknown token either.
  virtual int32_t idOf(std::string_view piece) const = 0;
  virtual SpecialTokens special() const = 0;
  // Null where the model says what stands around its lines.
  virtual const Frame *frame() const { return nullptr; }
  // Whether `size()` is that of the model's tables too, which otherwise may have rows that no token names.
  virtual bool fillsTables() const { return false; }
};

// Of a file's contents, by which its kind is known: a SentencePiece model, a tokenizer.json, SentencePiece with a map
// of ids, or a list of words. Throws Error that says what is wrong with it; `name` is for messages.
std::unique_ptr<Tokenizer> makeTokenizer(std::string_view contents, const std::string &name);

} // namespace xfc
