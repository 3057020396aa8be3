// Turns parallel text into the id sequences that a model trains on.
#include "corpora/Corpus.h"
#include <array>

namespace xfc {

void Corpus::store(std::span<const int32_t> source, std::span<const int32_t> target, Weights weights, Links links,
                   const PairLines *lines) {
  if (built.empty() || built.back().pairs() == blockPairs)
    built.emplace_back();
  PairBlock &block = built.back();
  block.add(source, target, weights, {}, links, lines);
  if (block.pairs() == blockPairs) {
    block.ends.shrink_to_fit();
    block.ids.shrink_to_fit();
    block.weights.shrink_to_fit();
    block.links.shrink_to_fit();
    block.text.shrink_to_fit();
  }
}

// To be called when all pairs of a part are in memory: the part begins at this block and this pair, and its labels may
// have so many links.
void Corpus::viewBuilt(size_t firstBlock, int64_t firstPair, int64_t linksPerLabel) {
  Part part{firstPair, {}};
  for (size_t i = firstBlock; i < built.size(); ++i)
    part.blocks.push_back({.ends = built[i].ends.data(),
                           .ids = built[i].ids.data(),
                           .weights = built[i].weights.data(),
                           .weighting = built[i].weighting(),
                           .linksPerLabel = linksPerLabel,
                           .linkEnds = built[i].linkEnds.data(),
                           .links = built[i].links.data(),
                           .prefixes = built[i].prefixes.data(),
                           .lineEnds = built[i].lineEnds.data(),
                           .text = built[i].text.data()});
  parts.push_back(std::move(part));
}

Corpus::Corpus(const std::vector<std::vector<int32_t>> &sources, const std::vector<std::vector<int32_t>> &targets,
               const Module &module) {
  for (size_t i = 0; i < sources.size(); ++i) {
    std::vector<int32_t> target = targets[i];
    target.insert(target.begin(), module.start);
    target.push_back(module.eos);
    if ((module.maxLength > 0 && static_cast<int64_t>(sources[i].size()) > module.maxLength) ||
        (module.maxTargetLength > 0 && static_cast<int64_t>(target.size()) - 1 > module.maxTargetLength)) {
      ++counts.skippedLong;
      continue;
    }
    counts.add(sources[i], target);
    store(sources[i], target);
  }
  viewBuilt(0, 0);
}

Corpus::Corpus(const PairFiles &files, const VocabularyPair &vocabularies, const Module &module, Format format,
               const PairFilter &filter, const Parallel &parallel)
    : Corpus(std::span(&files, 1), vocabularies, module, format, filter, parallel) {}

Corpus::Corpus(std::span<const PairFiles> corpora, const VocabularyPair &vocabularies, const Module &module,
               Format format, const PairFilter &filter, const Parallel &parallel, const EpochSampling &sampling)
    : parallel(parallel) {
  if (sampling.any())
    sampler = std::make_unique<TextSampler>(vocabularies, module, sampling);
  for (const PairFiles &files : corpora) {
    const size_t firstBlock = built.size();
    PairReader reader(files, vocabularies, module, format, filter, parallel);
    auto add = [&, fresh = true](std::span<const int32_t> source, std::span<const int32_t> target,
                                 Weights weights) mutable {
      if (fresh) // a part has blocks of its own
        built.emplace_back();
      fresh = false;
      const PairLines lines = reader.lines();
      store(source, target, weights, reader.links(), sampler ? &lines : nullptr);
    };
    while (reader.next(std::ref(add))) {
    }
    viewBuilt(firstBlock, counts.pairs, reader.linksPerLabel());
    counts.append(reader.totals());
    wordsDiffer += reader.unalignedWords();
    if (corpora.size() == 1)
      counts.hash = reader.totals().hash;
  }
  boundSamples(module);
}

void Corpus::boundSamples(const Module &module) {
  for (const int side : {XFC_SOURCE, XFC_TARGET}) {
    const int64_t most = side == XFC_SOURCE ? module.maxLength : module.maxTargetLength;
    longestSample[side] = std::min(4 * counts.longest[side], most > 0 ? most : std::numeric_limits<int64_t>::max());
  }
}

CorpusTotals Corpus::bounds() const {
  CorpusTotals bounds = counts;
  for (const int side : {XFC_SOURCE, XFC_TARGET})
    if (sampler && sampler->samples(side)) {
      bounds.longest[side] = longestSample[side];
      bounds.shortest[side] = sampler->shortest(side);
      bounds.tokens[side] = counts.pairs * longestSample[side];
    }
  return bounds;
}

// The sequence of a pair on a side that samples, segmented for this epoch.
std::vector<int32_t> Corpus::sample(size_t pair, int side, int64_t epoch) const {
  const auto [block, i] = placeOf(pair);
  const size_t at = 2 * i + (side == XFC_TARGET);
  const uint32_t begin = at == 0 ? 0 : block.lineEnds[at - 1];
  return sampler->sample({block.text + begin, block.lineEnds[at] - begin},
                         sequence(pair, side == XFC_TARGET).first(block.prefixes[at]), pair, side, epoch);
}

bool Corpus::draw(Corpus &drawn, std::span<const int64_t> pairs, int64_t epoch, const Parallel &parallel) const {
  constexpr size_t atOnce = 2048; // enough work for many threads, and a short wait for one that is to stop
  const std::span<const int64_t> rest = pairs.subspan(drawn.size());
  if (rest.empty())
    return false;
  std::vector<std::array<std::vector<int32_t>, 2>> window(std::min(atOnce, rest.size())); // sources and targets
  inChunks(parallel, window.size(), [&](size_t i) {
    const auto pair = static_cast<size_t>(rest[i]);
    for (const int side : {XFC_SOURCE, XFC_TARGET}) {
      std::vector<int32_t> &ids = window[i][side == XFC_TARGET];
      if (sampler->samples(side))
        ids = sample(pair, side, epoch);
      if (const auto length = static_cast<int64_t>(ids.size()) - (side == XFC_TARGET);
          ids.empty() || length > longestSample[side]) {
        const std::span<const int32_t> best = sequence(pair, side == XFC_TARGET);
        ids.assign(best.begin(), best.end());
      }
    }
  });
  for (size_t i = 0; i < window.size(); ++i) {
    const auto &[source, target] = window[i];
    const Weights ofPair = weights(static_cast<size_t>(rest[i])); // one for each label only if targets are not sampled
    drawn.counts.add(source, target, ofPair);
    drawn.store(source, target, ofPair);
  }
  if (window.size() == rest.size()) {
    drawn.viewBuilt(0, 0);
    drawn.numbers.assign(pairs.begin(), pairs.end());
  }
  return true;
}

Corpus::Corpus(const std::vector<std::string> &shardFiles, const VocabularyPair &vocabularies, const Module &module,
               const EpochSampling &sampling, const Parallel &parallel)
    : parallel(parallel) {
  if (sampling.any())
    sampler = std::make_unique<TextSampler>(vocabularies, module, sampling);
  shards.reserve(shardFiles.size());
  for (const std::string &file : shardFiles) {
    const Shard &shard = shards.emplace_back(file, vocabularies, module);
    parts.push_back({counts.pairs, shard.blocks()});
    counts.append(shard.totals());
    if (shardFiles.size() == 1) // so that its hash equals that of the text it was made from
      counts.hash = shard.totals().hash;
    const Shard::Block &first = shard.blocks().front();
    if (sampler && !first.text)
      throw Error(file + ": has no text to be segmented at random (--sentencepiece-alphas); make it again with "
                         "`prepare --keep-text`");
    if (sampler && (first.tokensPerLabel > 0 || first.linksPerLabel > 0 ||
                    (sampler->samples(XFC_TARGET) && first.weighting == Weighting::Word)))
      throw Error(file + ": has weights of words, links or distributions, which belong to the tokens of one "
                         "segmentation; train without --sentencepiece-alphas");
  }
  boundSamples(module);
}

std::vector<int64_t> Corpus::sizes() const {
  std::vector<int64_t> sizes;
  sizes.reserve(parts.size());
  for (size_t i = 0; i < parts.size(); ++i)
    sizes.push_back((i + 1 < parts.size() ? parts[i + 1].first : counts.pairs) - parts[i].first);
  return sizes;
}

bool Corpus::hasWeights() const {
  return std::ranges::any_of(parts, [](const Part &part) {
    return std::ranges::any_of(part.blocks,
                               [](const Shard::Block &block) { return block.weighting != Weighting::None; });
  });
}

// A number that all blocks of a part have, for each part.
std::vector<int64_t> Corpus::ofParts(int64_t Shard::Block::*number) const {
  std::vector<int64_t> numbers;
  numbers.reserve(parts.size());
  for (const Part &part : parts)
    numbers.push_back(part.blocks.empty() ? 0 : part.blocks.front().*number);
  return numbers;
}

std::vector<int64_t> Corpus::tokensPerLabel() const { return ofParts(&Shard::Block::tokensPerLabel); }
std::vector<int64_t> Corpus::linksPerLabel() const { return ofParts(&Shard::Block::linksPerLabel); }

const Corpus::Part &Corpus::partOf(size_t pair) const {
  return *(std::upper_bound(parts.begin(), parts.end(), static_cast<int64_t>(pair),
                            [](int64_t wanted, const Part &part) { return wanted < part.first; }) -
           1);
}

void Corpus::check(int64_t first, int64_t last) const {
  for (size_t k = 0; k < shards.size(); ++k) {
    shards[k].requireUnchanged();
    const int64_t before = parts[k].first, from = std::max(first - before, int64_t(0)),
                  to = std::min(last - before, shards[k].totals().pairs);
    for (int64_t block = from / blockPairs; block * blockPairs < to; ++block)
      shards[k].check(static_cast<size_t>(block));
  }
}

void Corpus::release() const {
  for (const Shard &shard : shards)
    shard.release();
}

} // namespace xfc
