// How good a model is on text it was not trained on: its loss, and its translations.
#pragma once

#include "decode/ModelOptions.h"
#include "decode/Search.h"
#include "text/Corpus.h"
#include <functional>

namespace xfc {

struct CorpusLoss {
  double loss = 0, nll = 0; // per label; natural logarithms
  int64_t labels = 0;
};
// Runs the program `score`, without dropout. Throws Interrupted where a signal was noted.
CorpusLoss corpusLoss(Engine &engine, const Corpus &corpus, int64_t batchTokens, double smoothing);

// Lines as the encoder reads them; `file` is for messages.
struct EncodedLines {
  EncodedLines() = default;
  EncodedLines(const TranslationModel &model, const std::vector<std::string> &lines, Format format,
               const std::string &file);
  void add(const TranslationModel &model, const std::string &line, Format format, const std::string &where);
  std::vector<std::vector<int32_t>> sources; // of the lines that are not empty
  std::vector<size_t> places;                // their numbers
  size_t count = 0;                          // of all lines
};

// Each line's best translation; "" for an empty line. `done` is called as sentences finish.
std::vector<std::string> translateLines(const TranslationModel &model, const EncodedLines &lines, Format format,
                                        const SearchOptions &options, const std::function<void(size_t)> &done = {});

} // namespace xfc
