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

int64_t elements(const std::vector<int64_t> &shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
}

// The two programs of a model, and the keys and values they hand on.
class StepDecoder {
public:
  explicit StepDecoder(Engine &engine) : engine(engine), program(engine.module().find("decode_step")) {
    if (!program || !engine.has("encode"))
      throw Error("model '" + engine.module().model +
                  "' cannot be decoded step by step: that takes token inputs, a decoder whose self-attentions are all "
                  "causal, and an executable compiled with --mode decode");
  }

  // Sentences may live in `width` hypotheses each, of at most steps[i] rows of cache.
  void encode(std::span<const std::vector<int32_t> *const> sources, int64_t width, std::span<const int64_t> steps) {
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
    engine.reserve("encode", counts);
    engine.reserve("decode_step", counts);
    rows = counts.rows[XFC_CACHE];

    std::vector<Sequence> sequences;
    for (const std::vector<int32_t> *source : sources)
      sequences.push_back({*source, static_cast<int64_t>(source->size()), 0});
    encoded.assign(sequences, {}, engine.module().pad, false);
    std::vector<Binding> bindings = {{"source", encoded.ids(XFC_SOURCE).data()}};
    engine.run("encode", encoded.shape(), bindings);

    // The results live in the arena, which the first step will overwrite.
    for (const Argument &argument : program->arguments) {
      int64_t features = elements(argument.shape), bytes = features * bytesOf(argument.type);
      RowStorage &storage = held[argument.name];
      if (argument.role == Argument::Role::State) {
        storage.reserve(rows * bytes);
      } else if (argument.set == XFC_SOURCE) {
        View view = engine.output("encode", argument.name);
        int64_t count = encoded.shape().sets[XFC_SOURCE].rows, stride = view.stride ? view.stride : features;
        storage.reserve(count * bytes);
        for (int64_t i = 0; i < count; ++i)
          std::memcpy(storage.data() + i * bytes,
                      static_cast<const char *>(view.data) + i * stride * bytesOf(argument.type), bytes);
      }
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
    engine.run("decode_step", batch.shape(), bindings);
    View view = engine.output("decode_step", "log_probs");
    return {view.data, view.output->type == DType::F64, view.stride};
  }

private:
  Engine &engine;
  const Program *program;
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

std::vector<std::vector<Hypothesis>> search(Engine &engine, const std::vector<std::vector<int32_t>> &sources,
                                            const SearchOptions &options,
                                            const std::vector<std::vector<int32_t>> &prefixes,
                                            const std::function<void(size_t)> &done) {
  check(options);
  const Module &module = engine.module();
  StepDecoder decoder(engine);
  SearchVocabulary vocabulary{module.targetVocab, module.pad, module.start, module.eos};

  // Like lengths together: they end at about the same step. The longest first, so that memory peaks at once.
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });

  std::vector<std::vector<Hypothesis>> results(sources.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    std::vector<const std::vector<int32_t> *> batch;
    std::vector<SearchSentence> sentences;
    std::vector<int64_t> steps;
    int64_t tokens = 0, live = 0;
    for (; end < order.size(); ++end) {
      const std::vector<int32_t> &source = sources[order[end]];
      tokens += static_cast<int64_t>(source.size());
      live += searchWidth(options);
      if (end > begin && std::max(tokens, live) > options.batchTokens)
        break;
      SearchSentence sentence{order[end], options.maxLength, options.minLength, {}};
      if (!prefixes.empty())
        sentence.prefix = prefixes[order[end]];
      if (sentence.maxLength == 0)
        sentence.maxLength = std::max({static_cast<int64_t>(2 * source.size() + 10), sentence.minLength,
                                       static_cast<int64_t>(sentence.prefix.size())});
      if (module.maxTargetLength > 0) // the decoder reads start and, before eos, every token
        sentence.maxLength = std::min(sentence.maxLength, module.maxTargetLength - (options.ignoreEos ? 0 : 1));
      batch.push_back(&source);
      sentences.push_back(sentence);
      steps.push_back(searchSteps(sentence, options));
    }
    decoder.encode(batch, searchWidth(options), steps);
    std::vector<std::vector<Hypothesis>> found = searchBatch(
        sentences, vocabulary, options, [&](const StepRequest &request) { return decoder.step(request); }, done,
        &engine.pool());
    for (size_t i = 0; i < found.size(); ++i)
      results[sentences[i].index] = std::move(found[i]);
  }
  return results;
}

} // namespace xfc
