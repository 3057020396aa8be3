// Files of parallel lines into pairs of id sequences, a window of lines at a time.
#pragma once

#include "support/Files.h"
#include "text/PairBlock.h"
#include "text/Vocabulary.h"
#include <functional>
#include <memory>

namespace xfc {

// Calls body(i) for each i in 0..count-1, on several threads or one after the other.
using Parallel = std::function<void(int64_t count, const std::function<void(int64_t)> &body)>;
void oneByOne(int64_t count, const std::function<void(int64_t)> &body);

// Where pairs are: line i of the sources together belongs to line i of the targets together; or lines of a source, a
// tab and its target.
struct PairFiles {
  std::vector<std::string> sources, targets, tables;
  // Each file, or source and target, by itself; there are as many of the latter as of the former.
  std::vector<PairFiles> each() const;
};

// Which pairs are used, by the tokens of their sides, without start, eos and tokens of languages.
struct PairFilter {
  int64_t shortest = 0, longest = 0; // of each side; 0: any
  double ratio = 0;                  // at most, of the longer to the shorter side; 0: any
};

// Several files of lines as if they were one. Lines are cut after a megabyte, with a warning.
class JoinedFiles {
public:
  explicit JoinedFiles(std::vector<std::string> files) : files(std::move(files)) {}
  // The next line; false after the last. Throws Error: unreadable, empty, or invalid UTF-8 (file:line).
  bool next(std::string &line);
  int64_t number() const { return lines; }              // of the last line, from 1
  std::string where() const { return reader->where(); } // file:line of the last line
  std::string names() const;                            // for messages
  double fraction() const;                              // of the bytes that have been read

private:
  std::vector<std::string> files;
  size_t opened = 0; // files that were, the present one included
  std::unique_ptr<LineReader> reader;
  int64_t lines = 0;
};

// Pairs longer than the model's max_length, pairs with an empty side, and those that the filter leaves out are skipped
// and counted.
class PairReader {
public:
  PairReader(const PairFiles &files, const VocabularyPair &vocabularies, const Module &module, Format format,
             const PairFilter &filter = {}, Parallel parallel = oneByOne);
  // Calls use(source, target) for the pairs of the next window, in order: the source as the encoder reads it, the
  // target with its start and eos. False where no line is left. Throws Error: unequal line counts, invalid UTF-8 or ids
  // (file:line), and at the end, if there was nothing to use. What it says is the same however many threads there are.
  using Use = std::function<void(std::span<const int32_t> source, std::span<const int32_t> target)>;
  bool next(const Use &use);
  const CorpusTotals &totals() const { return counts; } // of the pairs that were used
  double fraction() const { return sources.fraction(); }

private:
  struct Line {
    std::string source, target, sourceWhere, targetWhere;
    std::vector<int32_t> sourceIds, targetIds;
  };
  void encode(Line &line) const;
  bool nextLines(Line &line);
  bool isWanted(const Line &line);

  JoinedFiles sources, targets; // or tables in place of the former
  const bool inTables;
  VocabularyPair vocabularies;
  const Module &module;
  Format format;
  PairFilter filter;
  Parallel parallel;
  Frame sourceFrame;
  std::vector<int32_t> targetPrefix; // start, and what the vocabulary puts before a line
  std::vector<Line> window;
  CorpusTotals counts;
};

// How many pairs were skipped and why, in words.
std::string skippedOf(const CorpusTotals &totals);

} // namespace xfc
