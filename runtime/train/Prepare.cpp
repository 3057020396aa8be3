// Converts text to a file of pairs of ids, which training maps into memory.
#include "train/Prepare.h"
#include "decode/ModelOptions.h"
#include "device/ThreadPool.h"
#include "support/Files.h"
#include "support/Format.h"
#include "support/Interrupt.h"
#include "support/Progress.h"
#include "text/Shard.h"
#include <filesystem>

namespace xfc {

Parallel onThreadsOf(Engine &engine) {
  return [&pool = engine.pool()](int64_t count, const std::function<void(int64_t)> &body) {
    auto *context = const_cast<std::function<void(int64_t)> *>(&body);
    pool.run([](void *work, int64_t i, int) { (*static_cast<const std::function<void(int64_t)> *>(work))(i); }, context,
             count);
  };
}

void prepare(const PrepareOptions &options) {
  const InterruptGuard guard;
  const std::filesystem::path out = options.out;
  removeAbandoned(out.has_parent_path() ? out.parent_path().string() : ".",
                  [&](std::string_view name) { return name == out.filename().string(); });
  const std::unique_ptr<Engine> engine = makeEngine(options.threads, {});
  const Module &module = engine->module();
  module.requireTranslator();
  const LoadedVocabularies vocabularies = loadVocabularies(options.vocabulary, options.targetVocabulary, module);
  ShardWriter writer(options.out, vocabularies.pair(), module, options.format, options.text.weighting());
  PairReader reader(options.text, vocabularies.pair(), module, options.format, options.filter, onThreadsOf(*engine));
  ProgressBar bar(options.quiet);
  const CorpusTotals &totals = reader.totals();
  while (reader.next([&](std::span<const int32_t> source, std::span<const int32_t> target, Weights weights) {
    writer.add(source, target, weights);
  })) {
    checkInterrupted();
    bar.update(reader.fraction(), format("%lld pairs", static_cast<long long>(totals.pairs)));
  }
  writer.commit(totals);
  bar.say(format("%s: %lld pairs, %lld source and %lld target tokens; skipped: ", options.out.c_str(),
                 static_cast<long long>(totals.pairs), static_cast<long long>(totals.tokens[XFC_SOURCE]),
                 static_cast<long long>(totals.tokens[XFC_TARGET])) +
          skippedOf(totals));
}

} // namespace xfc
