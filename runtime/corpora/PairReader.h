// Turns parallel text files into pairs of id sequences, a window of lines at a time.
#pragma once

#include "corpora/ContextOptions.h"
#include "corpora/WordAlignment.h"
#include "support/LineReader.h"
#include <deque>
#include <functional>
#include <future>
#include <memory>

namespace xfc {

// Calls body(i) for each i in 0..count-1, on several threads or sequentially.
using Parallel = std::function<void(int64_t count, const std::function<void(int64_t)> &body)>;
void oneByOne(int64_t count, const std::function<void(int64_t)> &body);
// Calls body(i) for each i in 0..count-1, in short chunks. What the first failing i throws is thrown, whichever thread
// failed first.
void inChunks(const Parallel &parallel, size_t count, const std::function<void(size_t)> &body);

// The files that hold pairs: line i of the concatenated sources belongs to line i of the concatenated targets; or each
// line of the tables is a source, a tab and its target. Line i of the concatenated `weights` holds the weight of pair
// i, or with `weightColumn` a third column of the tables does: one number, or with `weighWords` one for each token of
// the target, language tokens included, and optionally one for eos. Line i of the concatenated `alignments` holds the
// links of pair i, "0-0 1-2", between tokens of the lines or, with `alignWords`, between words.
//
// A prefix, such as a tag that names the language to translate into, is a line of its own whose tokens are put before
// those of every line of a side, after the language tokens of the vocabulary, among which they count. There are none,
// one for all files, or one for each source file or table, and for each target file or table.
//
// With a context, files hold documents, which blank lines of both sides separate, and each side of a pair has the lines
// before it in front of its own: as many as `context` says, of the same document and with text on both sides, and no
// more than the model takes. Weights are the line's own; there are no weights of tokens and no alignments then.
struct PairFiles {
  std::vector<std::string> sources, targets, tables;
  std::vector<std::string> weights = {};
  std::vector<std::string> sourcePrefixes = {}, targetPrefixes = {};
  ContextOptions context = {};
  bool weightColumn = false, weighWords = false;
  std::vector<std::string> alignments = {};
  bool alignWords = false;

  Weighting weighting() const {
    return weights.empty() && !weightColumn ? Weighting::None : weighWords ? Weighting::Word : Weighting::Sentence;
  }
  // Splits this into single tables, or single source and target files, of which there must be equally many, and equally
  // many files of weights, and of alignments, if there are any.
  std::vector<PairFiles> each() const;
};

// Selects pairs by the number of tokens on each side, without start, eos and language tokens.
struct PairFilter {
  int64_t shortest = 0, longest = 0; // bounds for each side; 0: unlimited
  double ratio = 0;                  // the largest allowed ratio of the longer to the shorter side; 0: unlimited
};

// The ids around the tokens of a pair's target, from start to eos.
Frame targetFrameOf(const VocabularyPair &vocabularies, const Module &module, Format format);

// Reads several text files as if they were one. Lines are truncated after a megabyte, with a warning.
class JoinedFiles {
public:
  // `expected` says what a line should hold, for messages.
  explicit JoinedFiles(std::vector<std::string> files, std::string expected = "one sentence");
  // Reads the next line; false after the last. Throws Error if a file is unreadable, empty, or invalid UTF-8
  // (file:line).
  bool next(std::string &line);
  int64_t number() const { return lines; }              // of the last line, from 1
  size_t file() const { return opened - 1; }            // that the last line is in, from 0
  std::string where() const { return reader->where(); } // file:line of the last line
  std::string names() const;                            // for messages
  double fraction() const;                              // the fraction of all bytes that has been read

private:
  std::vector<std::string> files;
  std::string expected;
  size_t opened = 0; // how many files were opened, the current one included
  std::unique_ptr<LineReader> reader;
  int64_t lines = 0;
};

// Skips and counts pairs longer than the model's max_length, pairs with an empty side, and those that the filter
// excludes.
class PairReader {
public:
  // Throws Error if there are alignments and the model's training program takes no links.
  PairReader(const PairFiles &files, const VocabularyPair &vocabularies, const Module &module, Format format,
             const PairFilter &filter = {}, Parallel parallel = oneByOne);
  // Calls use(source, target, weights) for the pairs of the next window, in order: the source as the encoder reads it,
  // the target with its start and eos. Returns false if no line is left. Throws Error for unequal line counts, for
  // invalid UTF-8, ids, weights or links (file:line), and, at the end, if there was no usable pair. The error is the
  // same for any number of threads.
  using Use = std::function<void(std::span<const int32_t> source, std::span<const int32_t> target, Weights weights)>;
  bool next(const Use &use);
  // During a call of `use`: the text of the pair.
  PairLines lines() const {
    return {{used->source, used->target},
            {static_cast<uint32_t>(frameOf(sourceFrames, used->sourceFile).prefix.size()),
             static_cast<uint32_t>(frameOf(targetFrames, used->targetFile).prefix.size())}};
  }
  const std::string &place() const { return used->targetWhere; } // of its target: file:line
  Links links() const { return used->links; }                    // of its alignment
  int64_t linksPerLabel() const { return mostLinks; }            // that a label may have; 0: there are no alignments
  const CorpusTotals &totals() const { return counts; }          // of the pairs that were used
  double fraction() const { return window.fraction; }            // of all bytes, up to the last window
  // The number of used pairs whose links were left out, because the tokens of a line do not form its words.
  int64_t unalignedWords() const { return wordsDiffer; }

private:
  struct Line {
    std::string source, target, weightText, alignmentText, sourceWhere, targetWhere, weightWhere, alignmentWhere;
    size_t sourceFile = 0, targetFile = 0;
    // How many bytes of the two sides are of each line before, the first one first.
    std::vector<std::pair<size_t, size_t>> context;
    std::vector<int32_t> sourceIds, targetIds;
    std::vector<float> weights;
    std::vector<Link> links;
    bool wordsDiffer = false;
  };
  struct Window {
    std::vector<Line> lines; // of which the first `count` are used
    size_t count = 0;
    double fraction = 0;
  };
  static const Frame &frameOf(const std::vector<Frame> &frames, size_t file) {
    return frames[frames.size() == 1 ? 0 : file];
  }
  void readAhead();
  void addContext(Line &line);
  void tokenize(Line &line) const;
  void encode(Line &line) const;
  void readWeights(Line &line, size_t tokens) const;
  void readAlignment(Line &line) const;
  bool nextLines(Line &line);
  void splitTable(Line &line) const;
  void requireBoth(bool more, JoinedFiles &others, bool moreOthers, const std::string &rule);
  bool fits(const Line &line) const;
  bool isWanted(const Line &line);

  JoinedFiles sources, targets, weightFiles, alignments; // `sources` holds the tables, if there are any
  const bool inTables, weightColumn, aligned, alignWords;
  const int64_t mostLinks;
  const Weighting weighting;
  const ContextOptions context;
  // The pairs before the next one, as far as they belong to its document.
  struct {
    std::pair<size_t, size_t> files;
    std::deque<std::pair<std::string, std::string>> lines;
  } before;
  VocabularyPair vocabularies;
  const Module &module;
  Format format;
  PairFilter filter;
  Parallel parallel;
  std::vector<Frame> sourceFrames, targetFrames; // one for all files, or one for each
  Window window, upcoming;
  const Line *used = nullptr;
  CorpusTotals counts;
  int64_t wordsDiffer = 0;
  std::future<void> reading; // of `upcoming`, by a thread of its own, which ends before the members above
};

// Describes how many pairs were skipped and why.
std::string skippedOf(const CorpusTotals &totals);
// A note that so many pairs have no links, because the tokens of a line do not form its words; empty for none.
std::string unalignedOf(int64_t pairs);

} // namespace xfc
