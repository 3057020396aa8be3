// Converts text to token ids and back, for every kind of tokenizer that a model may have been trained with.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// Ids placed before and after the tokens of a line: NLLB's language and eos, BART's <s> and </s>.
struct Frame {
  std::vector<int32_t> prefix, suffix;
};

// Ids of special tokens; -1 if there is none, or if the file does not say.
struct SpecialTokens {
  int32_t pad = -1, unk = -1, bos = -1, eos = -1;
};

// Segments text at random, in place of the best segmentation. A unigram model draws one with a probability in
// proportion to the model's to the power of alpha (Kudo 2018); byte pair encoding leaves out each merge with
// probability alpha (BPE-dropout, Provilkov et al. 2020). The result depends on the generator only, not on the thread.
struct SegmentationSampling {
  double alpha;
  std::mt19937 &random;
  double draw() const { return static_cast<double>(random()) * 0x1p-32; } // in [0, 1)
};

class Tokenizer {
public:
  virtual ~Tokenizer() = default;
  // One more than the largest id.
  virtual int64_t size() const = 0;
  // The tokens of a line of UTF-8, without the frame; invalid bytes are read as U+FFFD. Runs in time linear in the
  // line's length, or n log n. Throws Error for text that the tokenizer has no token for.
  std::vector<int32_t> encode(std::string_view line) const { return segment(line, nullptr); }
  // Encodes a random segmentation, which decodes to the same text. To be called only if canSample().
  std::vector<int32_t> sample(std::string_view line, const SegmentationSampling &sampling) const {
    return segment(line, &sampling);
  }
  virtual bool canSample() const { return false; }
  // Special tokens are skipped. With `unknowns`, the unknown tokens among the ids are not: their texts are these, in
  // their order, spelled as pieces are.
  std::string decode(std::span<const int32_t> ids, std::span<const std::string> unknowns = {}) const {
    return join(ids, unknowns);
  }
  // What the line has for each of its unknown tokens, in their order, spelled as pieces are.
  virtual std::vector<std::string> unknowns(std::string_view line) const = 0;
  virtual std::string piece(int32_t id) const = 0; // for ids 0..size()-1
  // The id of a piece, or of the unknown token if there is no such piece; -1 if there is no unknown token either.
  virtual int32_t idOf(std::string_view piece) const = 0;
  virtual SpecialTokens special() const = 0;
  // Null if the model, not the tokenizer, defines the frame of its lines.
  virtual const Frame *frame() const { return nullptr; }
  // Whether `size()` must equal the size of the model's tables, which otherwise may have rows without a token.
  virtual bool fillsTables() const { return false; }
  // Whether the tokens of a line are in the opposite order of its text (tokenizers/ReversedTokenizer.h).
  virtual bool fromEnd() const { return false; }
  // What the file says that is not known here and has no effect, one line each.
  virtual std::vector<std::string> ignored() const { return {}; }

protected:
  virtual std::vector<int32_t> segment(std::string_view line, const SegmentationSampling *sampling) const = 0;
  virtual std::string join(std::span<const int32_t> ids, std::span<const std::string> unknowns) const = 0;
};

// Makes the tokenizer for a file's contents, which reveal its kind: a SentencePiece model, a tokenizer.json,
// SentencePiece with a map of ids, a list of words, or any of them from right to left. Throws an Error that says what
// is wrong; `name` is for messages.
std::unique_ptr<Tokenizer> makeTokenizer(std::string_view contents, const std::string &name);

} // namespace xfc
