// Turns parallel text into the id sequences that a model trains on.
#pragma once

#include "corpora/PairReader.h"
#include "corpora/Shard.h"
#include "corpora/TextSampler.h"

namespace xfc {

class Corpus {
public:
  // Reads text into memory, as PairReader does. Throws Error for unequal line counts, invalid UTF-8 or ids (file:line),
  // or if there is nothing to train on.
  Corpus(const PairFiles &files, const VocabularyPair &vocabularies, const Module &module, Format format,
         const PairFilter &filter = {}, const Parallel &parallel = oneByOne);
  // Reads several corpora, one after the other. The data equals that of shards prepared from each of them. With
  // `sampling`, the lines are kept too, so that draw() can be called. The vocabularies must then outlive the corpus.
  Corpus(std::span<const PairFiles> corpora, const VocabularyPair &vocabularies, const Module &module, Format format,
         const PairFilter &filter = {}, const Parallel &parallel = oneByOne, const EpochSampling &sampling = {});
  // Takes sources as the encoder reads them, and targets without start and eos tokens.
  Corpus(const std::vector<std::vector<int32_t>> &sources, const std::vector<std::vector<int32_t>> &targets,
         const Module &module);
  // Opens pairs that were written to shard files, one file after the other. They stay in the files and are read on use.
  // With `sampling`, draw() can be called, as above. Throws Error as Shard does, or if there is sampling and a file
  // does not hold its lines, or holds what belongs to the tokens of one segmentation.
  Corpus(const std::vector<std::string> &shardFiles, const VocabularyPair &vocabularies, const Module &module,
         const EpochSampling &sampling = {}, const Parallel &parallel = oneByOne);
  // Has no pairs; draw() adds some.
  Corpus() = default;
  Corpus(const Corpus &) = delete;
  Corpus(Corpus &&) = default;

  size_t size() const { return static_cast<size_t>(counts.pairs); }
  // The number of pairs of each corpus, or shard file, in order.
  std::vector<int64_t> sizes() const;
  const CorpusTotals &totals() const { return counts; }
  // Pair counts and lengths that no epoch exceeds: the totals themselves, unless the corpus is sampled.
  CorpusTotals bounds() const;

  // Whether each epoch has other segmentations of the text; draw() makes them, and the corpus itself has the best ones.
  bool isSampled() const { return sampler != nullptr; }
  // Makes a corpus of these pairs as an epoch has them, step by step: pair i of `drawn` is pairs[i] of this corpus. A
  // segmentation that is longer than the model's max_length, or than four times the longest pair of the side, is
  // replaced by the best one. `drawn` has the first of the pairs, or none; a step adds more of them. Returns false, and
  // adds none, if it has all. Between two steps `drawn` can be used for nothing else.
  bool draw(Corpus &drawn, std::span<const int64_t> pairs, int64_t epoch, const Parallel &parallel) const;
  // Runs work on the threads that read the corpus.
  const Parallel &onThreads() const { return parallel; }
  // The number of a pair in the corpus that this one was sampled from, or else `pair`.
  int64_t number(size_t pair) const { return numbers.empty() ? static_cast<int64_t>(pair) : numbers[pair]; }

  // The source as the encoder reads it: with eos if the model wants one (ids are taken verbatim).
  std::span<const int32_t> source(size_t pair) const { return sequence(pair, 0); }
  // The decoder's input: start and the tokens.
  std::span<const int32_t> target(size_t pair) const { return withEnds(pair).first(withEnds(pair).size() - 1); }
  // The decoder's expected output: the tokens and eos.
  std::span<const int32_t> labels(size_t pair) const { return withEnds(pair).subspan(1); }
  // The weights of the labels' losses: none if all are 1, a single one for all labels, or one for each.
  Weights weights(size_t pair) const {
    const Place place = placeOf(pair);
    if (place.block.weighting == Weighting::None)
      return {};
    if (place.block.weighting == Weighting::Sentence)
      return {place.block.weights + place.pair, 1};
    const std::span<const int32_t> says = labels(pair);
    return {place.block.weights + (says.data() - place.block.ids), says.size()};
  }
  bool hasWeights() const;
  // The number of pairs whose links were left out, because the tokens of a line do not form its words.
  int64_t unalignedWords() const { return wordsDiffer; }
  // The teacher's distributions of the labels, one after the other, all of equally many tokens; none if the file of the
  // pair has none.
  Distribution distributions(size_t pair) const {
    const Place place = placeOf(pair);
    const int64_t tokens = place.block.tokensPerLabel;
    if (tokens == 0)
      return {};
    const uint32_t begin = place.pair == 0 ? 0 : place.block.labelEnds[place.pair - 1];
    return {place.block.distributions + begin * tokens,
            static_cast<size_t>((place.block.labelEnds[place.pair] - begin) * tokens)};
  }
  // The links of the pair's word alignment; none if the corpus has no alignments.
  Links links(size_t pair) const {
    const auto [block, i] = placeOf(pair);
    if (block.linksPerLabel == 0)
      return {};
    const uint32_t begin = i == 0 ? 0 : block.linkEnds[i - 1];
    return {block.links + begin, block.linkEnds[i] - begin};
  }
  // For each corpus, or shard file, in order: the tokens in the distribution of a label; 0 if there are none.
  std::vector<int64_t> tokensPerLabel() const;
  // Likewise: how many links a label may have; 0 if there are no alignments.
  std::vector<int64_t> linksPerLabel() const;
  int64_t sourceLength(size_t pair) const { return static_cast<int64_t>(source(pair).size()); }
  int64_t targetLength(size_t pair) const { return static_cast<int64_t>(withEnds(pair).size()) - 1; }

  // To be called before pairs first..last-1 of a corpus in files are used: reads and checks them. Throws Error if they
  // are damaged, or a file was written to since it was opened.
  void check(int64_t first, int64_t last) const;
  // Drops the pages of all pairs in files from memory; they are read again at the next access.
  void release() const;

private:
  // The pairs of a file, or of a corpus that `built` holds.
  struct Part {
    int64_t first; // its first pair
    std::vector<Shard::Block> blocks;
  };
  const Part &partOf(size_t pair) const;
  struct Place {
    const Shard::Block &block;
    size_t pair; // in the block
  };
  Place placeOf(size_t pair) const {
    const Part &part = parts.size() == 1 ? parts[0] : partOf(pair);
    const size_t i = pair - static_cast<size_t>(part.first);
    return {part.blocks[i / blockPairs], i % blockPairs};
  }
  std::span<const int32_t> sequence(size_t pair, size_t side) const {
    const auto [block, i] = placeOf(pair);
    const size_t at = 2 * i + side;
    const uint32_t begin = at == 0 ? 0 : block.ends[at - 1];
    return {block.ids + begin, block.ends[at] - begin};
  }
  std::span<const int32_t> withEnds(size_t pair) const { return sequence(pair, 1); } // a target with its start and eos
  void store(std::span<const int32_t> source, std::span<const int32_t> target, Weights weights = {}, Links links = {},
             const PairLines *lines = nullptr);
  void viewBuilt(size_t firstBlock, int64_t firstPair, int64_t linksPerLabel = 0);
  std::vector<int64_t> ofParts(int64_t Shard::Block::*number) const;
  void boundSamples(const Module &module);
  std::vector<int32_t> sample(size_t pair, int side, int64_t epoch) const;

  CorpusTotals counts;
  int64_t wordsDiffer = 0;
  std::vector<PairBlock> built; // in memory
  std::vector<Shard> shards;    // in files
  std::vector<Part> parts;
  std::unique_ptr<TextSampler> sampler; // null: no sampling
  Parallel parallel = oneByOne;
  int64_t longestSample[2] = {0, 0}; // as CorpusTotals counts lengths
  std::vector<int64_t> numbers;
};

} // namespace xfc
