// How good a model is on text it was not trained on: its loss, and its translations.
#include "train/Validation.h"
#include "plan/Programs.h"
#include "support/Interrupt.h"
#include "text/Batches.h"
#include "train/Update.h"

namespace xfc {

CorpusLoss corpusLoss(Engine &engine, const Corpus &corpus, int64_t batchTokens, double smoothing) {
  Scalars smoothingScalar(engine.module(), {smoothing});
  const std::vector<std::vector<int64_t>> all = epochBatches(corpus, batchTokens, 0, 0);
  PairBatch batches[2]; // the one that runs, and the next
  std::unique_ptr<Readback> loss, nll;
  auto bindings = [&](size_t i) { return batches[i % 2].bindings(Binding{names::smoothing, smoothingScalar.data()}); };
  CorpusLoss sums;
  for (size_t i = 0; i < all.size(); ++i) {
    checkInterrupted();
    PairBatch &batch = batches[i % 2], &next = batches[(i + 1) % 2];
    if (i == 0)
      batch.assign(corpus, all[i], engine.module(), false);
    engine.run(programs::score, batch.shape(), bindings(i));
    engine.fetch(programs::score, names::loss, loss);
    engine.fetch(programs::score, names::nll, nll);
    if (i + 1 < all.size()) {
      next.assign(corpus, all[i + 1], engine.module(), false);
      engine.stage(programs::score, next.shape(), bindings(i + 1));
    }
    const int64_t rows = batch.shape().sets[XFC_TARGET].rows;
    sums.loss += sumOfRows(loss->view(), rows);
    sums.nll += sumOfRows(nll->view(), rows);
    sums.labels += batch.labelCount();
  }
  sums.loss /= static_cast<double>(std::max<int64_t>(sums.labels, 1));
  sums.nll /= static_cast<double>(std::max<int64_t>(sums.labels, 1));
  return sums;
}

EncodedLines::EncodedLines(const TranslationModel &model, const std::vector<std::string> &lines, Format format,
                           const std::string &file) {
  for (const std::string &line : lines)
    add(model, line, format, file + ":" + std::to_string(count + 1));
}

void EncodedLines::add(const TranslationModel &model, const std::string &line, Format format,
                       const std::string &where) {
  std::vector<int32_t> source = encodeSource(model, line, format, where);
  if (!source.empty()) {
    sources.push_back(std::move(source));
    places.push_back(count);
  }
  ++count;
}

std::vector<std::string> translateLines(const TranslationModel &model, const EncodedLines &lines, Format format,
                                        const SearchOptions &options, const std::function<void(size_t)> &done) {
  std::vector<std::string> translations(lines.count);
  if (lines.sources.empty())
    return translations;
  std::vector<std::vector<Hypothesis>> found = search(*model.engine, lines.sources, options, {}, done);
  for (size_t i = 0; i < found.size(); ++i)
    if (!found[i].empty())
      translations[lines.places[i]] = model.target->decode(found[i][0].ids, format);
  return translations;
}

} // namespace xfc
