// Measures a model on text it was not trained on: its loss, and its translations.
#pragma once

#include "corpora/Corpus.h"
#include "decode/ModelOptions.h"
#include "decode/Search.h"
#include "ranks/Ranks.h"
#include <functional>

namespace xfc {

struct CorpusLoss {
  double loss = 0, nll = 0; // per label; natural logarithms
  int64_t labels = 0;
};
// Runs the program `score`, without dropout. The batches are dealt to the ranks, and every rank gets the loss over all
// batches. Throws Interrupted on every rank if any rank recorded a signal.
CorpusLoss corpusLoss(Engine &engine, const Corpus &corpus, int64_t batchTokens, double smoothing, Ranks &ranks);

// Lines as the encoder reads them; `file` is for messages.
struct EncodedLines {
  EncodedLines() = default;
  EncodedLines(const TranslationModel &model, const std::vector<std::string> &lines, Format format,
               const std::string &file);
  void add(const TranslationModel &model, const std::string &line, Format format, const std::string &where);
  std::vector<std::vector<int32_t>> sources; // of the non-empty lines
  std::vector<size_t> places;                // the numbers of these lines
  size_t count = 0;                          // the number of all lines
};

// This rank's share of lines that are dealt to all ranks.
EncodedLines dealtOut(EncodedLines lines, const Ranks &ranks);

// Each line's best translation; "" for an empty line. `done` is called as sentences finish.
std::vector<std::string> translateLines(const TranslationModel &model, const EncodedLines &lines, Format format,
                                        const SearchOptions &options, const std::function<void(size_t)> &done = {});
// Translates lines that were dealt to all ranks; every rank gets all translations. Throws Interrupted on every rank
// if any rank recorded a signal.
std::vector<std::string> translateTogether(const TranslationModel &model, const EncodedLines &dealt, Format format,
                                           const SearchOptions &options, Ranks &ranks);

} // namespace xfc
