// Segments the text of a corpus at random, differently in each epoch.
#include "corpora/TextSampler.h"
#include <random>

namespace xfc {

TextSampler::TextSampler(const VocabularyPair &vocabularies, const Module &module, const EpochSampling &sampling)
    : vocabularies(vocabularies), sampling(sampling),
      frames{vocabularies.source.sourceFrame(module, Format::Text), targetFrameOf(vocabularies, module, Format::Text)} {
  for (const int side : {XFC_SOURCE, XFC_TARGET})
    if (samples(side) && !vocabulary(side).canSample())
      throw Error(vocabulary(side).name() +
                  ": --sentencepiece-alphas needs a unigram model or byte pair encoding; this vocabulary has only one "
                  "segmentation of a text");
}

std::vector<int32_t> TextSampler::sample(std::string_view line, std::span<const int32_t> prefix, size_t pair, int side,
                                         int64_t epoch) const {
  auto low = [](uint64_t number) { return static_cast<uint32_t>(number); };
  auto high = [](uint64_t number) { return static_cast<uint32_t>(number >> 32); };
  const auto ofEpoch = static_cast<uint64_t>(epoch);
  std::seed_seq key{low(sampling.seed),
                    high(sampling.seed),
                    low(ofEpoch),
                    high(ofEpoch),
                    low(pair),
                    high(pair),
                    static_cast<uint32_t>(side == XFC_TARGET)};
  std::mt19937 random(key);
  return framed(vocabulary(side).sample(line, {sampling.alphas[side], random}),
                {{prefix.begin(), prefix.end()}, frames[side].suffix});
}

int64_t TextSampler::shortest(int side) const { // the start of a target does not count
  return static_cast<int64_t>(frames[side].prefix.size() + frames[side].suffix.size() + (side == XFC_SOURCE ? 1 : 0));
}

} // namespace xfc
