// Parallel text into the id sequences a model trains on.
#include "text/Corpus.h"

namespace xfc {

void Corpus::store(std::span<const int32_t> source, std::span<const int32_t> target) {
  if (built.empty() || built.back().pairs() == blockPairs)
    built.emplace_back();
  PairBlock &block = built.back();
  block.add(source, target);
  if (block.pairs() == blockPairs) {
    block.ends.shrink_to_fit();
    block.ids.shrink_to_fit();
  }
}

// To be called when all pairs are in memory.
void Corpus::viewBuilt() {
  Part part{0, {}};
  for (const PairBlock &block : built)
    part.blocks.push_back({block.ends.data(), block.ids.data()});
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
  viewBuilt();
}

Corpus::Corpus(const PairFiles &files, const VocabularyPair &vocabularies, const Module &module, Format format,
               const PairFilter &filter, Parallel parallel) {
  PairReader reader(files, vocabularies, module, format, filter, std::move(parallel));
  while (
      reader.next([&](std::span<const int32_t> source, std::span<const int32_t> target) { store(source, target); })) {
  }
  counts = reader.totals();
  viewBuilt();
}

Corpus::Corpus(const std::vector<std::string> &shardFiles, const VocabularyPair &vocabularies, const Module &module) {
  shards.reserve(shardFiles.size());
  for (const std::string &file : shardFiles) {
    const Shard &shard = shards.emplace_back(file, vocabularies, module);
    const CorpusTotals &theirs = shard.totals();
    parts.push_back({counts.pairs, shard.blocks()});
    counts.pairs += theirs.pairs;
    counts.skippedLong += theirs.skippedLong;
    counts.skippedEmpty += theirs.skippedEmpty;
    for (int set : {XFC_SOURCE, XFC_TARGET}) {
      counts.tokens[set] += theirs.tokens[set];
      counts.shortest[set] = std::min(counts.shortest[set], theirs.shortest[set]);
      counts.longest[set] = std::max(counts.longest[set], theirs.longest[set]);
    }
    if (shardFiles.size() == 1) // the same data as the text it was made from
      counts.hash = theirs.hash;
    else
      counts.mix(theirs.hash);
  }
}

const Corpus::Part &Corpus::partOf(size_t pair) const {
  return *(std::upper_bound(parts.begin(), parts.end(), static_cast<int64_t>(pair),
                            [](int64_t wanted, const Part &part) { return wanted < part.first; }) -
           1);
}

void Corpus::check(int64_t first, int64_t last) const {
  for (size_t k = 0; k < shards.size(); ++k) {
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
