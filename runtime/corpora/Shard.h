// Stores a corpus as a file of pairs of ids, in blocks that are memory-mapped, so that it may be larger than memory.
//
// All numbers are little-endian. The file is
//
//   header   "xfcpairs", u32 version (1, 2 with weights, 3 with distributions, 4 with links, or 5 with lines), u8
//            Weighting, u8 L: the largest number of links that a label may have, 0 without links, u16 K: the number of
//            tokens in the distribution of each label, 0 without distributions
//   blocks   of 8192 pairs, the last of fewer: u32 ends[2 n], i32 ids[ends[2 n - 1]], f32 weights: none, one for each
//            pair, or one for each id, as a PairBlock holds them; with distributions, u32 labelEnds[n], and
//            K labelEnds[n - 1] times i32 token, f32 probability; with links, u32 linkEnds[n], and linkEnds[n - 1]
//            times i32 source token, i32 label; with lines, u32 prefixes[2 n], u32 lineEnds[2 n], lineEnds[2 n - 1]
//            bytes of text, and zeros up to a multiple of 4 bytes
//   table    for each block: u64 where the block ends in the file, u32 its CRC-32C, u32 source tokens in it; then, with
//            links, for each block: u32 links in it; then, with lines, for each block: u32 bytes of text in it
//   footer   see Footer in Shard.cpp: counts, hashes, checksums of all but the blocks, "xfcpairs"
//
// This layout can be written in one pass, and a truncated file is recognized by its missing footer.
#pragma once

#include "corpora/PairBlock.h"
#include "support/FileWriter.h"
#include "support/MappedFile.h"
#include "vocabularies/Vocabulary.h"
#include <optional>

namespace xfc {

// Writes a shard atomically.
class ShardWriter {
public:
  // The pairs are encoded with these vocabularies, for this model, were read as `format`, have such weights,
  // distributions of so many tokens, at most so many links for each label, and perhaps their lines. All members throw
  // Error with the system's reason.
  ShardWriter(const std::string &file, const VocabularyPair &vocabularies, const Module &module, Format format,
              Weighting weighting = Weighting::None, int64_t tokensPerLabel = 0, int64_t linksPerLabel = 0,
              bool withLines = false);
  // `target` includes start and eos; `distributions` are of its labels, one after the other.
  void add(std::span<const int32_t> source, std::span<const int32_t> target, Weights weights = {},
           Distribution distributions = {}, Links links = {}, const PairLines *lines = nullptr);
  void commit(const CorpusTotals &totals); // totals of all pairs added, without their distributions

private:
  void writeBlock();
  struct Entry {
    uint64_t end;
    uint32_t sum, sourceTokens;
  };
  FileWriter file;
  VocabularyPair vocabularies;
  const Module &module;
  Format format;
  Weighting weighting;
  int64_t tokensPerLabel, linksPerLabel;
  bool withLines;
  CorpusTotals ofDistributions; // their hash
  PairBlock block;
  uint32_t sourceTokens = 0; // in the block
  std::vector<Entry> table;
  std::vector<uint32_t> linkCounts, textSizes; // of the blocks; empty without links, and without lines
  uint64_t written = 0;
};

// A memory-mapped shard. Opening it reads the header, the footer and the table; blocks are read when they are checked.
class Shard {
public:
  // Throws Error if the file is not a shard, is truncated or damaged, was made with another vocabulary or for a model
  // with other tokens, or holds sequences longer than the model's max_length.
  Shard(const std::string &file, const VocabularyPair &vocabularies, const Module &module);
  // Reads contents that stay in memory, aligned to 4 bytes; `name` is for messages.
  Shard(std::string_view contents, const std::string &name, const VocabularyPair &vocabularies, const Module &module);

  const CorpusTotals &totals() const { return counts; }
  struct Block {
    const uint32_t *ends; // as in a PairBlock
    const int32_t *ids;
    const float *weights;
    Weighting weighting = Weighting::None;
    int64_t tokensPerLabel = 0; // in distributions; 0: there are none
    const uint32_t *labelEnds = nullptr;
    const TokenProbability *distributions = nullptr;
    int64_t linksPerLabel = 0; // that a label may have; 0: there are none
    const uint32_t *linkEnds = nullptr;
    const Link *links = nullptr;
    const uint32_t *prefixes = nullptr, *lineEnds = nullptr; // null without lines
    const char *text = nullptr;
  };
  // The blocks lie within the file; their contents may be used after check(i).
  const std::vector<Block> &blocks() const { return views; }
  // Reads block i. Throws Error if it does not match its checksum, or holds data that such a model cannot train on.
  void check(size_t i) const;
  // Throws Error if the file was written to since it was opened.
  void requireUnchanged() const;
  // Drops the pages of the blocks from memory; they are read again at the next access.
  void release() const;

private:
  void open(const VocabularyPair &vocabularies, const Module &module);
  [[noreturn]] void damaged(const std::string &what) const;
  std::string_view bytesOf(size_t i) const;
  int64_t pairsOf(size_t i) const;
  int64_t wordsOfLines(size_t i) const;
  int64_t idsOf(size_t i, int64_t sources) const;
  std::string placeOf(size_t i, int64_t pair) const;
  void checkDistributions(size_t i) const;
  void checkLinks(size_t i) const;
  void checkLines(size_t i) const;

  std::optional<MappedFile> file;
  std::string_view contents;
  std::string name;
  CorpusTotals counts;
  Weighting weighting = Weighting::None;
  int64_t tokensPerLabel = 0, linksPerLabel = 0;
  bool withLines = false;
  std::vector<uint32_t> linkCounts, textSizes; // of the blocks; empty without links, and without lines
  std::vector<Block> views;
  std::vector<uint64_t> begins; // file offsets of the blocks, and of the table
  int64_t sizes[2];             // of the vocabularies
  int32_t start, eos, pad;
};

} // namespace xfc
