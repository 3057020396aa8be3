// Turns source sentences into target sentences, through the programs encode and decode_candidates, decode_renormalized
// or decode_step. Sentences that end are replaced by waiting ones.
#include "decode/Search.h"
#include "decode/BeamSearch.h"
#include "plan/Memory.h"
#include "plan/Programs.h"
#include <algorithm>
#include <numeric>

namespace xfc {

namespace {

// Counts the rows and pairs that are reserved for a running sentence of `length` source tokens: it has at most `width`
// hypotheses, each of which takes at most `steps` tokens and `cached` rows of the cache.
Counts countsFor(int64_t length, int64_t width, int64_t steps, int64_t cached) {
  Counts counts;
  counts.rows[XFC_SOURCE] = length;
  counts.sequences[XFC_SOURCE] = 1;
  counts.rows[XFC_TARGET] = counts.sequences[XFC_TARGET] = width;
  counts.rows[XFC_CACHE] = width * cached;
  for (int kind = 0; kind < 4; ++kind) {
    counts.pairs[XFC_SOURCE_SOURCE * 4 + kind] = length * length;
    counts.pairs[XFC_TARGET_SOURCE * 4 + kind] = width * length;
    counts.pairs[XFC_TARGET_CACHE * 4 + kind] = width * cached;
  }
  counts.longest = std::max(length, steps);
  return counts;
}

void add(Counts &sum, const Counts &counts, int64_t times = 1) {
  for (int set = 0; set < XFC_ROW_SETS; ++set) {
    sum.rows[set] += times * counts.rows[set];
    sum.sequences[set] += times * counts.sequences[set];
  }
  for (int keys = 0; keys < XFC_KEY_STRUCTURES; ++keys)
    sum.pairs[keys] += times * counts.pairs[keys];
  sum.longest = std::max(sum.longest, counts.longest);
}

SearchVocabulary vocabularyOf(const Module &module) {
  return {module.targetVocab, module.pad, module.start, module.eos};
}

// The sentences of a search in the order in which they join.
struct SearchPlan {
  std::vector<size_t> order; // their indices in the input
  std::vector<SearchSentence> sentences;
  std::vector<Counts> counts; // of each
  // The memory to reserve: that of the largest batch, if the sentences were decoded in consecutive batches of at most
  // batchTokens source tokens and hypotheses, and batchSentences sentences. Running sentences stay within it, whenever
  // they end.
  Counts capacity;
};

// Longest first, so that memory peaks at once and sentences of similar length run together.
SearchPlan planSearch(const Module &module, const std::vector<std::vector<int32_t>> &sources,
                      const SearchOptions &options, const std::vector<std::vector<int32_t>> &prefixes,
                      size_t first = 0) {
  SearchPlan plan;
  plan.order.resize(sources.size());
  std::iota(plan.order.begin(), plan.order.end(), size_t(0));
  std::stable_sort(plan.order.begin(), plan.order.end(),
                   [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });
  Counts batch;
  for (size_t index : plan.order) {
    const auto length = static_cast<int64_t>(sources[index].size());
    SearchSentence sentence{first + index, options.generation.maxLength, options.generation.minLength, {}};
    if (!prefixes.empty())
      sentence.prefix = prefixes[index];
    if (sentence.maxLength == 0)
      sentence.maxLength =
          std::max({2 * length + 10, sentence.minLength,
                    static_cast<int64_t>(options.generation.forcedFirst.size() + sentence.prefix.size())});
    if (module.maxTargetLength > 0) // the decoder reads start and, if eos follows, every token
      sentence.maxLength =
          std::min(sentence.maxLength, module.maxTargetLength - (searchSteps(sentence, options) - sentence.maxLength));
    plan.sentences.push_back(sentence);
    const int64_t steps = searchSteps(sentence, options);
    plan.counts.push_back(countsFor(length, searchWidth(options), steps, rowsOfHypothesis(module, steps)));
    Counts more = batch;
    add(more, plan.counts.back());
    const bool full = std::max(more.rows[XFC_SOURCE], more.rows[XFC_TARGET]) > options.batchTokens ||
                      (options.batchSentences > 0 && more.sequences[XFC_SOURCE] > options.batchSentences);
    batch = full ? plan.counts.back() : more;
    plan.capacity = larger(plan.capacity, batch);
  }
  return plan;
}

// Runs the programs of a model, and holds the keys and values that they pass on, in rows that belong to a sentence
// while it runs.
class StepDecoder : public SearchedModel {
public:
  // The rows are the engine's, which keeps them from search to search; with `ownRows`, for searches during which others
  // may run, they are this object's.
  StepDecoder(Engine &engine, const std::vector<std::vector<int32_t>> &sources, const SearchPlan &plan,
              const SearchOptions &options, bool ownRows)
      : engine(engine), program(engine.module().stepProgram(searchCandidates(options, vocabularyOf(engine.module())),
                                                            options.computeType, options.generation.renormalize)),
        plan(plan), sentences(sources.size()), rows(sources.size()), freeRows(plan.capacity.rows[XFC_SOURCE]) {
    const Module &module = engine.module();
    if (!program || !engine.has(programs::encode))
      throw Error("model '" + module.model +
                  "' cannot be decoded step by step: that needs token inputs, a decoder whose self-attentions are all "
                  "causal, and an executable compiled with --mode decode");
    encoder = module.variant(programs::encode, options.computeType);
    for (size_t i = 0; i < plan.sentences.size(); ++i)
      sentences[i].ids = sources[plan.order[i]];
    std::iota(freeRows.rbegin(), freeRows.rend(), 0);
    checkMemory();
    engine.reserve(encoder, encoderCounts(plan.capacity, engine.device().isHost()));
    engine.reserve(program->name, plan.capacity);
    for (const Argument &argument : program->arguments) {
      const bool kept = argument.role == Argument::Role::State || argument.set == XFC_SOURCE;
      void *rows = nullptr;
      if (kept) {
        const int64_t bytes = plan.capacity.rows[argument.set] * featuresOf(argument) * bytesOf(argument.type);
        if (ownRows)
          own.push_back(engine.newRows(bytes));
        rows = ownRows ? own.back()->data() : engine.rows(argument.name, bytes);
      }
      bindings.push_back({argument.name, rows, 0, kept});
    }
  }

  size_t join(size_t first, bool idle) override {
    Counts group, all = used;
    size_t end = first;
    for (; end < sentences.size(); ++end) {
      Counts more = all;
      add(more, plan.counts[end]);
      if (!within(more, plan.capacity))
        break;
      all = more;
      add(group, plan.counts[end]);
    }
    // A few rows alone would not justify reading the encoder's weights.
    if (!idle && end < sentences.size() && group.rows[XFC_SOURCE] < fewestRows)
      return 0;
    if (end > first) {
      used = all;
      for (size_t s = first; s < end;)
        s = encode(s, end);
    }
    return end - first;
  }

  StepResult step(const StepRequest &request) override {
    batch.assignStep(sentences, engine.module().pad, plan.capacity.rows[XFC_SOURCE], request.sentenceOf,
                     request.positions, request.slots, request.history, plan.capacity.rows[XFC_CACHE]);
    ids.assign(request.ids.begin(), request.ids.end());
    wanted.assign(request.wanted.begin(), request.wanted.end());
    for (Binding &binding : bindings)
      if (binding.name == names::target)
        binding.data = ids.data();
      else if (binding.name == names::wanted)
        binding.data = wanted.data();
    engine.run(program->name, batch.shape(), bindings);
    auto numbers = [&](const char *name) -> NumberRows {
      View view = engine.output(program->name, name);
      return {view.data, view.output->type == DType::F64, view.stride};
    };
    if (program->is(programs::decodeStep))
      return {.all = numbers(names::logProbs)};
    View tokens = engine.output(program->name, names::tokens);
    return {.all = {},
            .count = static_cast<int>(tokens.output->shape.at(0)),
            .tokens = static_cast<const int32_t *>(tokens.data),
            .tokenStride = tokens.stride,
            .best = numbers(names::tokenLogProbs),
            .wanted = numbers(names::wantedLogProb)};
  }

  bool readsHistory() const override { return engine.module().readsHistory(); }

  void leave(size_t sentence) override {
    add(used, plan.counts[sentence], -1);
    freeRows.insert(freeRows.end(), rows[sentence].begin(), rows[sentence].end());
    rows[sentence] = {};
  }

private:
  // Memory of a GPU is allocated up front, so a shortage is reported before anything runs. Host memory is committed
  // only as it is touched.
  void checkMemory() const {
    if (engine.device().isHost())
      return;
    const int64_t needed =
        predictMemory(engine.module(), {encoder, program->name}, plan.capacity, 0).total() - engine.deviceBytes();
    const int64_t available = engine.device().available();
    if (needed > available)
      throw Error("--device cuda: the search needs " + std::to_string(needed) +
                  " more bytes of the GPU's memory, of which " + std::to_string(available) +
                  " are free; use a smaller --batch-tokens or --beam");
  }

  // Encodes the sentences from `first` on, before `end`, that together fit into what is reserved for the encoder, into
  // free rows. Returns the sentence after them.
  size_t encode(size_t first, size_t end) {
    std::vector<Sequence> sequences;
    std::vector<int32_t> taken;
    std::sort(freeRows.begin(), freeRows.end(), std::greater<>()); // takes low rows, adjacent where possible
    const int64_t most = encoderCounts(plan.capacity, engine.device().isHost()).rows[XFC_SOURCE];
    size_t s = first;
    for (; s < end; ++s) {
      const auto length = static_cast<int64_t>(sentences[s].ids.size());
      if (static_cast<int64_t>(taken.size()) + length > most)
        break;
      sequences.push_back({sentences[s].ids, length, 0});
      rows[s].assign(freeRows.rbegin(), freeRows.rbegin() + length);
      freeRows.resize(freeRows.size() - length);
      sentences[s].rows = rows[s];
      taken.insert(taken.end(), rows[s].begin(), rows[s].end());
    }
    encoded.assign(sequences, {}, engine.module().pad, false);
    const Binding source[] = {{names::source, encoded.ids(XFC_SOURCE).data()}};
    engine.run(encoder, encoded.shape(), source);

    // The results live in the arena, which the first step overwrites.
    for (size_t i = 0; i < bindings.size(); ++i)
      if (const Argument &argument = program->arguments[i];
          argument.role != Argument::Role::State && argument.set == XFC_SOURCE)
        engine.copyRows(encoder, argument.name, bindings[i].data, taken);
    return s;
  }

  static constexpr int64_t fewestRows = 128;

  Engine &engine;
  const Program *program; // of a decoding step
  std::string encoder;    // the name of the encoder's program
  const SearchPlan &plan;
  Counts used; // by the running sentences
  std::vector<EncodedSentence> sentences;
  std::vector<std::vector<int32_t>> rows; // of each running sentence
  std::vector<int32_t> freeRows, ids, wanted;
  Batch encoded, batch;
  std::vector<Binding> bindings;                  // of a step
  std::vector<std::unique_ptr<DeviceMemory>> own; // projected encoder rows and caches, if they are not the engine's
};

void check(const SearchOptions &options, const Module &module) {
  if (std::optional<GenerationProblem> problem =
          findProblem(options.generation, module.targetVocab, module.pad, module.eos)) {
    std::replace(problem->where.begin(), problem->where.end(), '_', '-'); // from model.json's spelling to the option's
    throw Error("--" + problem->where + ": " + problem->what);
  }
  auto require = [](bool holds, const char *message) {
    if (!holds)
      throw Error(message);
  };
  require(options.nBest >= 1, "--n-best: expected at least 1");
  require(options.sample || options.nBest <= options.generation.beam,
          "--n-best is larger than --beam: a beam of K gives at most K translations; use a larger --beam");
  require(options.temperature > 0, "--temperature: expected a number above 0");
  require(options.topK >= 0, "--top-k: expected 0 (all tokens) or more");
  require(options.topP > 0 && options.topP <= 1, "--top-p: expected a number above 0 and at most 1");
}

} // namespace

Counts searchCounts(const Module &module, const std::vector<std::vector<int32_t>> &sources,
                    const SearchOptions &options) {
  check(options, module);
  return planSearch(module, sources, options, {}).capacity;
}

std::vector<std::vector<Hypothesis>> search(Engine &engine, const std::vector<std::vector<int32_t>> &sources,
                                            const SearchOptions &options,
                                            const std::vector<std::vector<int32_t>> &prefixes,
                                            const std::function<void(size_t)> &done, size_t first) {
  const Module &module = engine.module();
  check(options, module);
  const SearchPlan plan = planSearch(module, sources, options, prefixes, first);
  StepDecoder decoder(engine, sources, plan, options, /*ownRows=*/false);
  std::vector<std::vector<Hypothesis>> found = searchSentences(
      plan.sentences, vocabularyOf(module), options, plan.capacity.rows[XFC_CACHE], decoder, done, &engine.pool());
  std::vector<std::vector<Hypothesis>> results(sources.size());
  for (size_t i = 0; i < found.size(); ++i)
    results[plan.order[i]] = std::move(found[i]);
  return results;
}

struct SteppedSearch::State {
  std::vector<std::vector<int32_t>> sources, prefixes;
  SearchOptions options;
  SearchVocabulary vocabulary;
  SearchPlan plan;
  std::vector<size_t> placeOf; // of each sentence, in the plan
  StepDecoder decoder;
  SentenceSearches searches;

  State(Engine &engine, std::vector<std::vector<int32_t>> &&given, const SearchOptions &options,
        std::vector<std::vector<int32_t>> &&forced, size_t first)
      : sources(std::move(given)), prefixes(std::move(forced)), options(options),
        vocabulary(vocabularyOf(engine.module())),
        plan(planSearch(engine.module(), sources, this->options, prefixes, first)), placeOf(sources.size()),
        decoder(engine, sources, plan, this->options, /*ownRows=*/true),
        searches(plan.sentences, vocabulary, this->options, plan.capacity.rows[XFC_CACHE], decoder, {},
                 &engine.pool()) {
    for (size_t i = 0; i < plan.order.size(); ++i)
      placeOf[plan.order[i]] = i;
  }
};

SteppedSearch::SteppedSearch(Engine &engine, std::vector<std::vector<int32_t>> sources, const SearchOptions &options,
                             std::vector<std::vector<int32_t>> prefixes, size_t first) {
  check(options, engine.module());
  state = std::make_unique<State>(engine, std::move(sources), options, std::move(prefixes), first);
}
SteppedSearch::~SteppedSearch() = default;
bool SteppedSearch::advance() { return state->searches.advance(); }
bool SteppedSearch::ended(size_t sentence) const { return state->searches.ended(state->placeOf[sentence]); }
std::vector<Hypothesis> SteppedSearch::hypotheses(size_t sentence) const {
  return state->searches.hypotheses(state->placeOf[sentence]);
}

} // namespace xfc
