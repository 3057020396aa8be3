// Measures a model on text it was not trained on: its loss, and its translations.
#include "train/Validation.h"
#include "corpora/Batches.h"
#include "decode/Choice.h"
#include "plan/Programs.h"
#include "support/Signals.h"
#include "train/Update.h"
#include <cstring>

namespace xfc {

static void throwTogether(int signal, Ranks &ranks) {
  if (const int noted = ranks.largest(signal))
    throw Interrupted(noted);
}

CorpusLoss corpusLoss(Engine &engine, const Corpus &corpus, int64_t batchTokens, double smoothing, Ranks &ranks) {
  Scalars smoothingScalar(engine.module(), {smoothing});
  const std::vector<std::vector<int64_t>> all = epochBatches(corpus, batchTokens, 0, 0);
  PairBatch batches[2]; // the running one, and the next
  std::unique_ptr<Readback> loss, nll;
  auto bindings = [&](size_t i) { return batches[i % 2].bindings(Binding{names::smoothing, smoothingScalar.data()}); };
  std::vector<double> mine; // loss, nll and labels of each batch of this rank
  for (size_t i = 0, at = ranks.rank(); at < all.size() && !interrupted(); ++i, at += ranks.size()) {
    PairBatch &batch = batches[i % 2], &next = batches[(i + 1) % 2];
    if (i == 0)
      batch.assign(corpus, all[at], engine.module(), false);
    engine.run(programs::score, batch.shape(), bindings(i));
    engine.fetch(programs::score, names::loss, loss);
    engine.fetch(programs::score, names::nll, nll);
    if (at + ranks.size() < all.size()) {
      next.assign(corpus, all[at + ranks.size()], engine.module(), false);
      engine.stage(programs::score, next.shape(), bindings(i + 1));
    }
    const int64_t rows = batch.shape().sets[XFC_TARGET].rows;
    mine.insert(mine.end(),
                {sumOfRows(loss->view(), rows), sumOfRows(nll->view(), rows), static_cast<double>(batch.labelCount())});
  }
  throwTogether(interrupted(), ranks);
  const std::vector<double> each = ranks.gatherInTurn(mine, 3, all.size());
  CorpusLoss sums;
  for (size_t i = 0; i < each.size(); i += 3) {
    sums.loss += each[i];
    sums.nll += each[i + 1];
    sums.labels += static_cast<int64_t>(each[i + 2]);
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

EncodedLines dealtOut(EncodedLines lines, const Ranks &ranks) {
  if (ranks.size() == 1)
    return lines;
  EncodedLines mine;
  mine.count = lines.count;
  for (size_t i = ranks.rank(); i < lines.sources.size(); i += ranks.size()) {
    mine.sources.push_back(std::move(lines.sources[i]));
    mine.places.push_back(lines.places[i]);
  }
  return mine;
}

std::vector<std::string> translateLines(const TranslationModel &model, const EncodedLines &lines, Format format,
                                        const SearchOptions &options, const std::function<void(size_t)> &done) {
  std::vector<std::string> translations(lines.count);
  if (lines.sources.empty())
    return translations;
  std::vector<std::vector<Hypothesis>> found = search(model.models(), lines.sources, options, {}, {}, done);
  for (size_t i = 0; i < found.size(); ++i)
    if (const std::vector<Hypothesis> best = chosen(model, lines.sources[i], std::move(found[i]), options, format);
        !best.empty())
      translations[lines.places[i]] = decodeTarget(model, best[0].ids, options, format);
  return translations;
}

std::vector<std::string> translateTogether(const TranslationModel &model, const EncodedLines &dealt, Format format,
                                           const SearchOptions &options, Ranks &ranks) {
  std::vector<std::string> translations;
  int signal = 0;
  try {
    translations = translateLines(model, dealt, format, options, [](size_t) { checkInterrupted(); });
  } catch (const Interrupted &stopped) {
    signal = stopped.signal;
  }
  throwTogether(signal, ranks);
  if (ranks.size() == 1)
    return translations;
  std::string mine; // for each line: its number, its size, and its bytes
  auto append = [&](uint64_t number) { mine.append(reinterpret_cast<const char *>(&number), sizeof(number)); };
  for (size_t place : dealt.places) {
    append(place);
    append(translations[place].size());
    mine += translations[place];
  }
  const std::vector<std::string> all = ranks.gather(mine);
  for (const std::string &theirs : all)
    for (size_t at = 0; at < theirs.size();) {
      uint64_t header[2];
      std::memcpy(header, theirs.data() + at, sizeof(header));
      translations[header[0]] = theirs.substr(at + sizeof(header), header[1]);
      at += sizeof(header) + header[1];
    }
  return translations;
}

} // namespace xfc
