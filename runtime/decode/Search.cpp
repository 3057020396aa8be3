// From source sentences to target sentences: batches of like lengths through the programs encode and decode_step.
#include "Search.h"
#include "BeamSearch.h"
#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <numeric>

namespace xfc {

namespace {

// Rows of features that programs read, and write for a cache. Not initialized: pages of a cache that no hypothesis
// ever reaches take no memory. Kernels may read up to 64 bytes past the end.
class RowStorage {
public:
  void reserve(int64_t bytes) {
    if (bytes <= capacity)
      return;
    capacity = bytes;
    memory.reset(static_cast<char *>(::operator new(bytes + 64, std::align_val_t(64))));
  }
  char *data() const { return memory.get(); }

private:
  struct Free {
    void operator()(char *p) const { ::operator delete(p, std::align_val_t(64)); }
  };
  std::unique_ptr<char, Free> memory;
  int64_t capacity = 0;
};

// Sentences that are decoded together, in how many steps at most.
struct SentenceBatch {
  std::vector<const std::vector<int32_t> *> sources;
  std::vector<SearchSentence> sentences;
  std::vector<int64_t> steps;

  // Each sentence may live in `width` hypotheses, of at most steps[i] rows of cache.
  Counts counts(int64_t width) const {
    Counts counts;
    for (size_t i = 0; i < sources.size(); ++i) {
      int64_t length = static_cast<int64_t>(sources[i]->size());
      counts.rows[XFC_SOURCE] += length;
      counts.rows[XFC_TARGET] += width;
      counts.rows[XFC_CACHE] += width * steps[i];
      for (int kind = 0; kind < 4; ++kind) {
        counts.pairs[XFC_SOURCE_SOURCE * 4 + kind] += length * length;
        counts.pairs[XFC_TARGET_SOURCE * 4 + kind] += width * length;
        counts.pairs[XFC_TARGET_CACHE * 4 + kind] += width * steps[i];
      }
      counts.longest = std::max({counts.longest, length, steps[i]});
    }
    counts.sequences[XFC_SOURCE] = static_cast<int64_t>(sources.size());
    counts.sequences[XFC_TARGET] = counts.rows[XFC_TARGET];
    return counts;
  }
};

// Like lengths together: they end at about the same step. The longest first, so that memory peaks at once.
std::vector<SentenceBatch> makeBatches(const Module &module, const std::vector<std::vector<int32_t>> &sources,
                                       const SearchOptions &options, const std::vector<std::vector<int32_t>> &prefixes) {
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });
  std::vector<SentenceBatch> batches;
  int64_t tokens = 0, live = 0;
  for (size_t index : order) {
    const std::vector<int32_t> &source = sources[index];
    tokens += static_cast<int64_t>(source.size());
    live += searchWidth(options);
    if (batches.empty() || std::max(tokens, live) > options.batchTokens) {
      batches.emplace_back();
      tokens = static_cast<int64_t>(source.size());
      live = searchWidth(options);
    }
    SearchSentence sentence{index, options.maxLength, options.minLength, {}};
    if (!prefixes.empty())
      sentence.prefix = prefixes[index];
    if (sentence.maxLength == 0)
      sentence.maxLength = std::max({static_cast<int64_t>(2 * source.size() + 10), sentence.minLength,
                                     static_cast<int64_t>(sentence.prefix.size())});
    if (module.maxTargetLength > 0) // the decoder reads start and, before eos, every token
      sentence.maxLength = std::min(sentence.maxLength, module.maxTargetLength - (options.ignoreEos ? 0 : 1));
    batches.back().sources.push_back(&source);
    batches.back().sentences.push_back(sentence);
    batches.back().steps.push_back(searchSteps(sentence, options));
  }
  return batches;
}

Counts largest(const std::vector<SentenceBatch> &batches, const SearchOptions &options) {
  Counts counts;
  for (const SentenceBatch &batch : batches)
    counts = larger(counts, batch.counts(searchWidth(options)));
  return counts;
}

// The two programs of a model, and the keys and values they hand on.
class StepDecoder {
public:
  StepDecoder(Engine &engine, const std::string &computeType) : engine(engine) {
    const Module &module = engine.module();
    if (!engine.has("decode_step") || !engine.has("encode"))
      throw Error("model '" + module.model +
                  "' cannot be decoded step by step: that takes token inputs, a decoder whose self-attentions are all "
                  "causal, and an executable compiled with --mode decode");
    encoder = module.variant("encode", computeType);
    program = module.find(module.variant("decode_step", computeType));
  }

  // Memory for batches of up to these counts.
  void reserve(const Counts &counts) {
    engine.reserve(encoder, counts);
    engine.reserve(program->name, counts);
    rows = counts.rows[XFC_CACHE];
    for (const Argument &argument : program->arguments)
      if (argument.role == Argument::Role::State || argument.set == XFC_SOURCE)
        held[argument.name].reserve(counts.rows[argument.set] * featuresOf(argument) * bytesOf(argument.type));
  }

  void encode(std::span<const std::vector<int32_t> *const> sources) {
    std::vector<Sequence> sequences;
    for (const std::vector<int32_t> *source : sources)
      sequences.push_back({*source, static_cast<int64_t>(source->size()), 0});
    encoded.assign(sequences, {}, engine.module().pad, false);
    std::vector<Binding> bindings = {{"source", encoded.ids(XFC_SOURCE).data()}};
    engine.run(encoder, encoded.shape(), bindings);

    // The results live in the arena, which the first step will overwrite.
    for (const Argument &argument : program->arguments) {
      if (argument.role == Argument::Role::State || argument.set != XFC_SOURCE)
        continue;
      View view = engine.output(encoder, argument.name);
      int64_t features = featuresOf(argument), bytes = features * bytesOf(argument.type);
      int64_t count = encoded.shape().sets[XFC_SOURCE].rows, stride = view.stride ? view.stride : features;
      char *to = held[argument.name].data();
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(to + i * bytes, static_cast<const char *>(view.data) + i * stride * bytesOf(argument.type), bytes);
    }
  }

  StepResult step(const StepRequest &request) {
    batch.assignStep(encoded, request.sentenceOf, request.positions, request.slots, request.history, rows);
    std::vector<int32_t> ids(request.ids.begin(), request.ids.end());
    std::vector<Binding> bindings;
    for (const Argument &argument : program->arguments)
      if (argument.role == Argument::Role::Input && argument.set == XFC_TARGET)
        bindings.push_back({argument.name, ids.data()});
      else
        bindings.push_back({argument.name, held[argument.name].data()});
    engine.run(program->name, batch.shape(), bindings);
    View view = engine.output(program->name, "log_probs");
    return {view.data, view.output->type == DType::F64, view.stride};
  }

private:
  Engine &engine;
  std::string encoder;    // the name of one
  const Program *program; // the other
  Batch encoded, batch;
  std::map<std::string, RowStorage> held; // by argument: projected encoder rows, and caches
  int64_t rows = 0;
};

void check(const SearchOptions &options) {
  auto require = [](bool holds, const char *message) {
    if (!holds)
      throw Error(message);
  };
  require(options.beam >= 1, "--beam: at least 1 is needed");
  require(options.nBest >= 1, "--n-best: at least 1 is needed");
  require(options.sample || options.nBest <= options.beam,
          "--n-best is larger than --beam: a beam of K gives at most K translations; use a larger --beam");
  require(options.temperature > 0, "--temperature: a number above 0 is needed");
  require(options.topK >= 0, "--top-k: 0 (all tokens) or more is needed");
  require(options.topP > 0 && options.topP <= 1, "--top-p: a number above 0 and at most 1 is needed");
  require(options.maxLength >= 0 && options.minLength >= 0, "--max-length, --min-length: 0 or more is needed");
  require(options.maxLength == 0 || options.minLength <= options.maxLength, "--min-length is larger than --max-length");
}

} // namespace

Counts searchCounts(const Module &module, const std::vector<std::vector<int32_t>> &sources, const SearchOptions &options) {
  check(options);
  return largest(makeBatches(module, sources, options, {}), options);
}

std::vector<std::vector<Hypothesis>> search(Engine &engine, const std::vector<std::vector<int32_t>> &sources,
                                            const SearchOptions &options,
                                            const std::vector<std::vector<int32_t>> &prefixes,
                                            const std::function<void(size_t)> &done) {
  check(options);
  const Module &module = engine.module();
  StepDecoder decoder(engine, options.computeType);
  SearchVocabulary vocabulary{module.targetVocab, module.pad, module.start, module.eos};

  std::vector<SentenceBatch> batches = makeBatches(module, sources, options, prefixes);
  decoder.reserve(largest(batches, options));
  std::vector<std::vector<Hypothesis>> results(sources.size());
  for (SentenceBatch &batch : batches) {
    decoder.encode(batch.sources);
    std::vector<std::vector<Hypothesis>> found = searchBatch(
        batch.sentences, vocabulary, options, [&](const StepRequest &request) { return decoder.step(request); }, done,
        &engine.pool());
    for (size_t i = 0; i < found.size(); ++i)
      results[batch.sentences[i].index] = std::move(found[i]);
  }
  return results;
}

} // namespace xfc
