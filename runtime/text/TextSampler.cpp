// Keeps the text of a corpus, and segments it at random, differently in each epoch.
#include "text/TextSampler.h"
#include <algorithm>

namespace xfc {

TextSampler::TextSampler(const VocabularyPair &vocabularies, const Module &module, const EpochSampling &sampling)
    : vocabularies(vocabularies), sampling(sampling) {
  const Frame frames[] = {vocabularies.source.sourceFrame(module, Format::Text),
                          targetFrameOf(vocabularies, module, Format::Text)};
  for (const int side : {XFC_SOURCE, XFC_TARGET}) // the start of a target does not count
    shortestSequences[side] =
        static_cast<int64_t>(frames[side].prefix.size() + frames[side].suffix.size() + (side == XFC_SOURCE ? 1 : 0));
  for (const int side : {XFC_SOURCE, XFC_TARGET})
    if (samples(side) && !vocabulary(side).canSample())
      throw Error(vocabulary(side).name() +
                  ": --sentencepiece-alphas needs a unigram model or byte pair encoding; this vocabulary has only one "
                  "segmentation of a text");
}

void TextSampler::add(std::string_view source, std::string_view target, const Frame &sourceFrame,
                      const Frame &targetFrame) {
  const auto differ = [](const Frame &a, const Frame &b) { return a.prefix != b.prefix || a.suffix != b.suffix; };
  if (framed.empty() || differ(framed.back().frames[XFC_SOURCE], sourceFrame) ||
      differ(framed.back().frames[XFC_TARGET], targetFrame))
    framed.push_back({count, {sourceFrame, targetFrame}});
  ++count;
  if (blocks.empty() || blocks.back().ends.size() == 2 * blockPairs)
    blocks.emplace_back();
  Block &block = blocks.back();
  for (const std::string_view line : {source, target}) {
    block.bytes += line;
    block.ends.push_back(block.bytes.size());
  }
}

std::string_view TextSampler::line(size_t pair, int side) const {
  const Block &block = blocks[pair / blockPairs];
  const size_t at = 2 * (pair % blockPairs) + (side == XFC_TARGET), begin = at == 0 ? 0 : block.ends[at - 1];
  return std::string_view(block.bytes).substr(begin, block.ends[at] - begin);
}

std::vector<int32_t> TextSampler::sample(size_t pair, int side, int64_t epoch) const {
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
  const Frame &frame = (std::ranges::upper_bound(framed, pair, {}, &Framed::first) - 1)->frames[side];
  return xfc::framed(vocabulary(side).sample(line(pair, side), {sampling.alphas[side], random}), frame);
}

int64_t TextSampler::shortest(int side) const { return shortestSequences[side]; }

} // namespace xfc
