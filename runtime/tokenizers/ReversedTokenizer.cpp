// Vocabularies of models that write, or read, lines from their end.
#include "tokenizers/ReversedTokenizer.h"
#include "support/Error.h"
#include <algorithm>

namespace xfc {

namespace {

template <typename T> std::vector<T> reversed(std::span<const T> elements) {
  return {elements.rbegin(), elements.rend()};
}

class ReversedTokenizer : public Tokenizer {
public:
  explicit ReversedTokenizer(std::unique_ptr<Tokenizer> other) : other(std::move(other)) {}
  int64_t size() const override { return other->size(); }
  bool canSample() const override { return other->canSample(); }
  std::vector<std::string> unknowns(std::string_view line) const override {
    return reversed<std::string>(other->unknowns(line));
  }
  std::string piece(int32_t id) const override { return other->piece(id); }
  int32_t idOf(std::string_view piece) const override { return other->idOf(piece); }
  SpecialTokens special() const override { return other->special(); }
  const Frame *frame() const override { return other->frame(); } // which stays around the line
  bool fillsTables() const override { return other->fillsTables(); }
  bool fromEnd() const override { return true; }
  std::vector<std::string> ignored() const override { return other->ignored(); }

protected:
  std::vector<int32_t> segment(std::string_view line, const SegmentationSampling *sampling) const override {
    return reversed<int32_t>(sampling ? other->sample(line, *sampling) : other->encode(line));
  }
  std::string join(std::span<const int32_t> ids, std::span<const std::string> unknowns) const override {
    return other->decode(reversed(ids), reversed(unknowns));
  }

private:
  std::unique_ptr<Tokenizer> other;
};

} // namespace

std::string reversedVocabulary(std::string_view contents) {
  return isReversed(contents) ? std::string(contents.substr(reversedMagic.size()))
                              : std::string(reversedMagic) + std::string(contents);
}

std::unique_ptr<Tokenizer> reversedTokenizer(std::string_view contents) {
  contents.remove_prefix(reversedMagic.size());
  if (isReversed(contents))
    throw Error("a vocabulary from right to left holds another one; expected one from left to right");
  return std::make_unique<ReversedTokenizer>(makeTokenizer(contents, "the vocabulary in it"));
}

} // namespace xfc
