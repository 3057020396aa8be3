// A corpus as a file: pairs of ids in blocks that are mapped into memory, so that it may be larger than memory.
//
// All numbers are little-endian. The file is
//
//   header   "xfcpairs", u32 version (1), u32 0
//   blocks   of 8192 pairs, the last of fewer: u32 ends[2 n], i32 ids[ends[2 n - 1]], as a PairBlock holds them
//   table    of blocks: u64 where the block ends in the file, u32 its CRC-32C, u32 source tokens in it
//   footer   see Footer in Shard.cpp: counts, hashes, checksums of all but the blocks, "xfcpairs"
//
// so that it can be written in one go, and that a file that was cut off is known by its end.
#pragma once

#include "support/Files.h"
#include "text/PairBlock.h"
#include "text/Vocabulary.h"
#include <optional>

namespace xfc {

// Writes a shard, whole or not at all.
class ShardWriter {
public:
  // The pairs are of these vocabularies, for this model, and were read as `format`. Throws Error, as all of it does,
  // with the system's reason.
  ShardWriter(const std::string &file, const VocabularyPair &vocabularies, const Module &module, Format format);
  void add(std::span<const int32_t> source, std::span<const int32_t> target); // the target with its start and eos
  void commit(const CorpusTotals &totals);                                    // of all pairs that were added

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
  PairBlock block;
  uint32_t sourceTokens = 0; // of the block
  std::vector<Entry> table;
  uint64_t written = 0;
};

// A shard that is mapped into memory. Opening it reads its ends; the blocks are read when they are checked.
class Shard {
public:
  // Throws Error: not a shard, cut off, damaged, of another vocabulary, or of a model with other tokens or a smaller
  // max_length.
  Shard(const std::string &file, const VocabularyPair &vocabularies, const Module &module);
  // The same of contents that stay where they are, at a multiple of 4; `name` for messages.
  Shard(std::string_view contents, const std::string &name, const VocabularyPair &vocabularies, const Module &module);

  const CorpusTotals &totals() const { return counts; }
  struct Block {
    const uint32_t *ends; // as in a PairBlock
    const int32_t *ids;
  };
  // Lies within the file; what it says may be used after check(i).
  const std::vector<Block> &blocks() const { return views; }
  // Reads block i. Throws Error where it does not match its checksum, or holds what no such model could be trained on.
  void check(size_t i) const;
  // Gives the pages of the blocks back to the system, which reads them again where they are used again.
  void release() const;

private:
  void open(const VocabularyPair &vocabularies, const Module &module);
  [[noreturn]] void damaged(const std::string &what) const;
  std::string_view bytesOf(size_t i) const;
  int64_t pairsOf(size_t i) const;

  std::optional<MappedFile> file;
  std::string_view contents;
  std::string name;
  CorpusTotals counts;
  std::vector<Block> views;
  std::vector<uint64_t> begins; // of the blocks, and of the table
  int64_t sizes[2];             // of the vocabularies
  int32_t start, eos;
};

} // namespace xfc
