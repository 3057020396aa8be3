// Converts text to a file of pairs of ids, which training maps into memory.
#include "train/Prepare.h"
#include "corpora/Shard.h"
#include "device/ThreadPool.h"
#include "support/FileWriter.h"
#include "support/Format.h"
#include <filesystem>
#include <optional>

namespace xfc {

Parallel onThreadsOf(Engine &engine) {
  return [&pool = engine.pool()](int64_t count, const std::function<void(int64_t)> &body) {
    auto *context = const_cast<std::function<void(int64_t)> *>(&body);
    pool.run([](void *work, int64_t i, int) { (*static_cast<const std::function<void(int64_t)> *>(work))(i); }, context,
             count);
  };
}

void preparePairs(const std::string &out, const PairFiles &text, const PairFilter &filter,
                  const VocabularyPair &vocabularies, Engine &engine, Format format, ProgressBar &bar, bool keepText,
                  Teacher *teacher, int64_t distribution) {
  const Module &module = engine.module();
  PairReader reader(text, vocabularies, module, format, filter, onThreadsOf(engine));
  ShardWriter writer(out, vocabularies, module, format, text.weighting(), distribution, reader.linksPerLabel(),
                     keepText);
  const CorpusTotals &totals = reader.totals();
  TaughtPairs window; // with a teacher: the pairs of a window, whose distributions are computed together
  while (reader.next([&](std::span<const int32_t> source, std::span<const int32_t> target, Weights weights) {
    const PairLines lines = reader.lines();
    if (teacher)
      window.add(source, target, weights, reader.links(), reader.place());
    else
      writer.add(source, target, weights, {}, reader.links(), &lines);
  })) {
    if (teacher) {
      const auto distributions = teacher->distributions(window);
      for (size_t i = 0; i < window.size(); ++i)
        writer.add(window.sources[i], window.targets[i], window.weights[i], distributions[i], window.links[i]);
      window.clear();
    }
    bar.update(reader.fraction(), xfc::format("%lld pairs", static_cast<long long>(totals.pairs)));
  }
  writer.commit(totals);
  bar.say(xfc::format("%s: %lld pairs, %lld source and %lld target tokens; skipped: ", out.c_str(),
                      static_cast<long long>(totals.pairs), static_cast<long long>(totals.tokens[XFC_SOURCE]),
                      static_cast<long long>(totals.tokens[XFC_TARGET])) +
          skippedOf(totals));
  if (const std::string note = unalignedOf(reader.unalignedWords()); !note.empty())
    bar.say(note);
  for (const std::string &note : vocabularies.notes())
    bar.say(note);
}

void prepare(const PrepareOptions &options) {
  const std::filesystem::path out = options.out;
  removeAbandoned(out.has_parent_path() ? out.parent_path().string() : ".",
                  [&](std::string_view name) { return name == out.filename().string(); });
  const Format format = options.model.format;
  std::unique_ptr<Engine> engine;
  LoadedVocabularies vocabularies;
  std::optional<Teacher> teacher;
  if (options.distribution > 0) {
    TranslationModel model = loadModel(options.model);
    engine = std::move(model.engine);
    vocabularies = {model.source, model.target};
    teacher.emplace(*engine, options.distribution, options.batchTokens);
  } else {
    engine = makeEngine(options.model.threads, {});
    engine->module().requireTranslator();
    vocabularies = loadVocabularies(options.model.vocabulary, options.model.targetVocabulary, engine->module());
  }
  ProgressBar bar(options.model.quiet);
  preparePairs(options.out, options.text, options.filter, vocabularies.pair(), *engine, format, bar, options.keepText,
               teacher ? &*teacher : nullptr, options.distribution);
}

} // namespace xfc
