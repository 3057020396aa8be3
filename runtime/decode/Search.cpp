// Turns source sentences into target sentences: a decoder over the programs encode and decode_candidates,
// decode_renormalized or decode_step, and those who use it.
#include "decode/Search.h"
#include "decode/Decoder.h"
#include "decode/Drafter.h"
#include "decode/EnsembleModel.h"
#include "decode/Workers.h"
#include "plan/Memory.h"
#include "plan/Programs.h"
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

namespace xfc {

namespace {

void check(const SearchOptions &options, const Module &module) {
  if (std::optional<GenerationProblem> problem =
          findProblem(options.generation, module.targetVocab, module.pad, module.start, module.eos)) {
    std::replace(problem->where.begin(), problem->where.end(), '_', '-'); // from model.json's spelling to the option's
    throw Error("--" + problem->where + ": " + problem->what);
  }
  auto require = [](bool holds, const char *message) {
    if (!holds)
      throw Error(message);
  };
  if (options.draws() && !options.generation.requiredPhrases.empty())
    refuseConstraints(options, "--required-phrases: ");
  require(options.nBest >= 1, "--n-best: expected at least 1");
  if (options.alternatives && options.draws())
    throw Error(std::string("--alternatives searches, and does not go with ") +
                (options.utility ? "--mbr" : "--sample") + "; leave out one of the two");
  require(!options.alternatives || options.generation.beamGroups == 1,
          "--alternatives are groups of their own, and do not go with --beam-groups; leave out one of the two");
  require(!options.alternatives || options.nBest <= mostHypotheses / options.generation.beam,
          "--alternatives: --n-best times --beam is more than 65536 hypotheses; give a smaller --beam");
  require(options.draws() || options.alternatives || options.nBest <= options.generation.beam,
          "--n-best is larger than --beam: a beam of K gives at most K translations; use a larger --beam");
  require(!options.utility || options.nBest <= options.samples,
          "--n-best is larger than --samples, of which the best are chosen; use more --samples");
  require(!options.utility || options.generation.coveragePenalty == 0,
          "--coverage-penalty does not go with --mbr, whose scores are expected utilities; leave out one of the two");
}

SearchVocabulary vocabularyOf(const Module &module) {
  return {module.targetVocab, module.pad, module.start, module.eos};
}

// The order in which the sentences of a search join: the longest first, so that memory peaks at once and sentences of
// similar length run together.
std::vector<size_t> joiningOrder(const std::vector<std::vector<int32_t>> &sources) {
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });
  return order;
}

// The room to reserve: that of the largest batch, if the sentences were decoded in this order, in consecutive batches
// of at most batchTokens source tokens and hypotheses, and batchSentences sentences. Running sentences stay within it,
// whenever they end.
Counts capacityFor(const Module &module, bool readsHistory, const std::vector<std::vector<int32_t>> &sources,
                   const std::vector<size_t> &order, const SearchOptions &options,
                   const std::vector<std::vector<int32_t>> &prefixes,
                   const std::vector<std::vector<Constraint>> &constraints, int64_t drafts) {
  Counts capacity, batch;
  for (size_t index : order) {
    const auto length = static_cast<int64_t>(sources[index].size());
    const std::span<const int32_t> prefix = prefixes.empty() ? std::span<const int32_t>() : prefixes[index];
    const std::unique_ptr<const Constraints> itsConstraints =
        constraintsFor(options, constraints.empty() ? std::span<const Constraint>() : constraints[index]);
    const Counts room =
        roomFor(sentenceFor(options, index, length, prefix, module.maxTargetLength, itsConstraints.get()), options,
                length, readsHistory, drafts);
    Counts more = batch;
    add(more, room);
    const bool full = std::max(more.rows[XFC_SOURCE], more.rows[XFC_TARGET]) > options.batchTokens ||
                      (options.batchSentences > 0 && more.sequences[XFC_SOURCE] > options.batchSentences);
    batch = full ? room : more;
    capacity = larger(capacity, batch);
  }
  return capacity;
}

// Runs the programs of a model, and holds the keys and values that they pass on, in rows that belong to a sentence
// while it runs.
class StepModel : public SearchedModel {
public:
  // The rows are the engine's, which keeps them from search to search; with `ownRows`, for decoders beside which others
  // may run, they are this object's.
  StepModel(Engine &engine, const Counts &capacity, bool ownRows)
      : engine(engine), capacity(capacity), ownRows(ownRows), freeRows(capacity.rows[XFC_SOURCE]) {
    std::iota(freeRows.rbegin(), freeRows.rend(), 0);
  }

  SearchVocabulary vocabulary() const override { return vocabularyOf(engine.module()); }
  int64_t longestTarget() const override { return engine.module().maxTargetLength; }
  bool readsHistory() const override { return engine.module().readsHistory(); }

  int64_t fewestRows() const override { return 128; }

  size_t groupOf(const SearchOptions &options, bool constrained) override {
    const Module &module = engine.module();
    check(options, module);
    const Program *program = module.stepProgram(constrained ? 0 : searchCandidates(options, vocabulary()),
                                                options.computeType, options.generation.renormalize);
    if (!program || !engine.has(programs::encode))
      throw Error("model '" + module.model +
                  "' cannot be decoded step by step: that needs token inputs, a decoder whose self-attentions are all "
                  "causal, and an executable compiled with --mode decode");
    const std::string encoder = module.variant(programs::encode, options.computeType);
    for (size_t group = 0; group < groups.size(); ++group)
      if (groups[group].program == program && groups[group].encoder == encoder)
        return group;
    open(program, encoder);
    return groups.size() - 1;
  }

  void join(size_t group, std::span<const JoiningSentence> joining) override {
    while (!joining.empty())
      joining = joining.subspan(encode(groups[group], joining));
  }

  StepResult step(size_t number, const StepRequest &request) override {
    Group &group = groups[number];
    batch.assignStep(sentences, engine.module().pad, capacity.rows[XFC_SOURCE], request.placeOf, request.positions,
                     request.slots, request.history, capacity.rows[XFC_CACHE]);
    ids.assign(request.ids.begin(), request.ids.end());
    wanted.assign(request.wanted.begin(), request.wanted.end());
    for (Binding &binding : group.bindings)
      if (binding.name == names::target)
        binding.data = ids.data();
      else if (binding.name == names::wanted)
        binding.data = wanted.data();
    const Program &program = *group.program;
    engine.run(program.name, batch.shape(), group.bindings);
    auto numbers = [&](const char *name) -> NumberRows {
      View view = engine.output(program.name, name);
      return {view.data, view.output->type == DType::F64, view.stride};
    };
    if (program.is(programs::decodeStep))
      return {.all = numbers(names::logProbs)};
    View tokens = engine.output(program.name, names::tokens);
    return {.all = {},
            .count = static_cast<int>(tokens.output->shape.at(0)),
            .tokens = static_cast<const int32_t *>(tokens.data),
            .tokenStride = tokens.stride,
            .best = numbers(names::tokenLogProbs),
            .wanted = numbers(names::wantedLogProb)};
  }

  void leave(size_t place) override {
    freeRows.insert(freeRows.end(), rows[place].begin(), rows[place].end());
    rows[place] = {};
    sentences[place] = {};
  }

private:
  // What requests with the same programs share.
  struct Group {
    const Program *program; // of a decoding step
    std::string encoder;    // the name of the encoder's program
    std::vector<Binding> bindings;
  };

  void open(const Program *program, const std::string &encoder) {
    checkMemory(*program, encoder);
    engine.reserve(encoder, encoderCapacity());
    engine.reserve(program->name, capacity);
    Group group{program, encoder, {}};
    for (const Argument &argument : program->arguments) {
      const bool kept = argument.role == Argument::Role::State || argument.set == XFC_SOURCE;
      group.bindings.push_back({argument.name, kept ? keptRows(argument) : nullptr, 0, kept});
    }
    groups.push_back(std::move(group));
  }

  Counts encoderCapacity() const {
    return encoderCounts(capacity, engine.device().traits().hostThreads ? engine.pool().threads() : 0);
  }

  // The rows of an argument, which all programs share in which it has this size: each sentence has its own.
  void *keptRows(const Argument &argument) {
    const int64_t bytes = capacity.rows[argument.set] * featuresOf(argument) * bytesOf(argument.type);
    if (!ownRows)
      return engine.rows(argument.name, bytes);
    std::unique_ptr<DeviceMemory> &memory = own[{argument.name, bytes}];
    if (!memory)
      memory = engine.newRows(bytes);
    return memory->data();
  }

  // Memory of a GPU is allocated up front, so a shortage is reported before anything runs. Host memory is committed
  // only as it is touched.
  void checkMemory(const Program &program, const std::string &encoder) const {
    if (engine.device().traits().hostMemory)
      return;
    const int64_t needed =
        predictMemory(engine.module(), {encoder, program.name}, capacity, 0, engine.device().runsPersistent()).total() -
        engine.deviceBytes();
    const int64_t available = engine.device().available();
    if (needed > available)
      throw Error("--device cuda: the search needs " + std::to_string(needed) +
                  " more bytes of the GPU's memory, of which " + std::to_string(available) +
                  " are free; use a smaller --batch-tokens or --beam");
  }

  // Encodes as many sentences, from the first one on, as together fit into what is reserved for the encoder, into free
  // rows. Returns their number.
  size_t encode(const Group &group, std::span<const JoiningSentence> joining) {
    std::vector<Sequence> sequences;
    std::vector<int32_t> taken;
    std::sort(freeRows.begin(), freeRows.end(), std::greater<>()); // takes low rows, adjacent where possible
    const int64_t most = encoderCapacity().rows[XFC_SOURCE];
    for (const auto &[place, source] : joining) {
      const auto length = static_cast<int64_t>(source.size());
      if (static_cast<int64_t>(taken.size()) + length > most)
        break;
      if (place >= sentences.size()) {
        sentences.resize(place + 1);
        rows.resize(place + 1);
      }
      sequences.push_back({source, length, 0});
      rows[place].assign(freeRows.rbegin(), freeRows.rbegin() + length);
      freeRows.resize(freeRows.size() - length);
      sentences[place] = {source, rows[place]};
      taken.insert(taken.end(), rows[place].begin(), rows[place].end());
    }
    encoded.assign(sequences, {}, engine.module().pad, false);
    const Binding source[] = {{names::source, encoded.ids(XFC_SOURCE).data()}};
    engine.run(group.encoder, encoded.shape(), source);

    // The results live in the arena, which the first step overwrites.
    for (size_t i = 0; i < group.bindings.size(); ++i)
      if (const Argument &argument = group.program->arguments[i];
          argument.role != Argument::Role::State && argument.set == XFC_SOURCE)
        engine.copyRows(group.encoder, argument.name, group.bindings[i].data, taken);
    return sequences.size();
  }

  Engine &engine;
  const Counts capacity;
  const bool ownRows;
  std::vector<Group> groups;
  // By place, for those that are taken.
  std::vector<EncodedSentence> sentences;
  std::vector<std::vector<int32_t>> rows;
  std::vector<int32_t> freeRows, ids, wanted;
  Batch encoded, batch;
  // Projected encoder rows and caches, by name and size, if they are not the engine's.
  std::map<std::pair<std::string, int64_t>, std::unique_ptr<DeviceMemory>> own;
};

// The requests of one search, which join the longest first.
struct SentenceSet {
  std::vector<size_t> order; // the sentence of each request
  std::unique_ptr<Workers> workers;
  std::vector<std::optional<std::vector<Hypothesis>>> results; // of each sentence that has ended
  std::vector<RequestId> requests;                             // of each sentence

  SentenceSet(const Ensemble &models, const std::vector<std::vector<int32_t>> &sources, const SearchOptions &options,
              const std::vector<std::vector<int32_t>> &prefixes,
              const std::vector<std::vector<Constraint>> &constraints, const std::vector<size_t> &numbers,
              const std::vector<std::string> &places, bool ownRows)
      : order(joiningOrder(sources)), results(sources.size()), requests(sources.size()) {
    const Module &module = models.module();
    check(options, module);
    const int64_t drafts = draftsOf(options, models.draft().tokens);
    const Counts capacity =
        capacityFor(module, models.readsHistory(), sources, order, options, prefixes, constraints, drafts);
    workers = makeWorkers(models, capacity, ownRows);
    workers->prepare(options);
    const auto shared = std::make_shared<const SearchOptions>(options);
    for (size_t sentence : order)
      requests[sentence] =
          workers->submit({.source = sources[sentence],
                           .prefix = prefixes.empty() ? std::vector<int32_t>() : prefixes[sentence],
                           .constraints = constraints.empty() ? std::vector<Constraint>() : constraints[sentence],
                           .options = shared,
                           .number = numbers.empty() ? sentence : numbers[sentence],
                           .where = places.empty() ? std::string() : places[sentence]});
  }

  bool advance(const std::function<void(size_t)> &done = {}) {
    for (DecoderEvent &event : workers->step()) {
      if (event.kind == DecoderEvent::Kind::Failed)
        throw Error(event.message);
      const size_t sentence = order[event.id];
      results[sentence] = std::move(event.found);
      if (done)
        done(sentence);
    }
    return !workers->idle();
  }
};

} // namespace

void refuseConstraints(const SearchOptions &options, const std::string &where) {
  throw Error(where + (options.utility ? "--mbr" : "--sample") +
              " does not go with constraints: tokens that are drawn at random cannot be made to meet them; leave out "
              "one of the two");
}

std::unique_ptr<Decoder> makeDecoder(const Ensemble &models, const Counts &capacity, bool ownRows) {
  std::vector<std::unique_ptr<SearchedModel>> members;
  for (Engine *engine : models.members())
    members.push_back(std::make_unique<StepModel>(*engine, capacity, ownRows));
  ThreadPool *const pool = &models.first().pool();
  std::unique_ptr<SearchedModel> model =
      members.size() == 1 ? std::move(members.front()) : ensembleModel(std::move(members), models.weights(), pool);
  const auto [drafting, tokens] = models.draft();
  std::unique_ptr<Drafter> drafter;
  if (drafting)
    drafter = std::make_unique<Drafter>(std::make_unique<StepModel>(*drafting, capacity, ownRows),
                                        drafting->module().computeTypes(programs::encode), capacity);
  auto decoder = std::make_unique<Decoder>(std::move(model), std::move(drafter), tokens, capacity, pool);
  decoder->takeShortlist(models.shortlist());
  return decoder;
}

std::unique_ptr<Workers> makeWorkers(const Ensemble &models, const Counts &capacity, bool ownRows,
                                     std::function<void()> told) {
  std::vector<std::unique_ptr<Decoder>> decoders;
  decoders.push_back(makeDecoder(models, capacity, ownRows));
  for (const Ensemble &worker : models.workers())
    decoders.push_back(makeDecoder(worker, capacity, ownRows));
  return std::make_unique<Workers>(std::move(decoders), std::move(told));
}

Counts searchCounts(const Module &module, const std::vector<std::vector<int32_t>> &sources,
                    const SearchOptions &options) {
  check(options, module);
  return capacityFor(module, module.readsHistory(), sources, joiningOrder(sources), options, {}, {}, 0);
}

Counts decoderCounts(const Ensemble &models, const SearchOptions &options) {
  const Module &module = models.module();
  check(options, module);
  const int64_t tokens = options.batchTokens, width = searchWidth(options);
  const int64_t rowsEach = 1 + draftsOf(options, models.draft().tokens); // of a hypothesis in a step
  const bool readsHistory = models.readsHistory();
  const auto stepsOf = [&](int64_t length) {
    return searchSteps(sentenceFor(options, 0, length, {}, module.maxTargetLength), options);
  };
  const int64_t longestSource = module.maxLength > 0 ? std::min(tokens, module.maxLength) : tokens;
  // Sentences of the usual length are as many as the tokens allow; of shorter ones a few less find room in the cache.
  constexpr int64_t usualLength = 16;
  const int64_t usual = std::max(usualLength, width), together = std::max<int64_t>(tokens / usual, 1);
  const int64_t sentences = options.batchSentences > 0 ? std::min(options.batchSentences, tokens) : tokens;
  Counts counts = decodeCounts(module, sentences, 1, std::max(tokens, width * rowsEach), 1);
  counts.rows[XFC_SOURCE] = tokens;
  counts.rows[XFC_CACHE] = std::max(product({together, width, rowsOfHypothesis(readsHistory, stepsOf(usual))}),
                                    product({width, rowsOfHypothesis(readsHistory, stepsOf(longestSource))}));
  for (int kind = 0; kind < 4; ++kind) {
    counts.pairs[XFC_SOURCE_SOURCE * 4 + kind] = product({tokens, longestSource});
    counts.pairs[XFC_TARGET_SOURCE * 4 + kind] = product({counts.rows[XFC_TARGET], longestSource});
    counts.pairs[XFC_TARGET_CACHE * 4 + kind] = product({counts.rows[XFC_CACHE], rowsEach});
  }
  counts.longest = std::max(longestSource, stepsOf(longestSource));
  return counts;
}

struct SteppedSearch::State : SentenceSet {
  using SentenceSet::SentenceSet;
};

SteppedSearch::SteppedSearch(const Ensemble &models, const std::vector<std::vector<int32_t>> &sources,
                             const SearchOptions &options, const std::vector<std::vector<int32_t>> &prefixes,
                             const std::vector<std::vector<Constraint>> &constraints,
                             const std::vector<std::string> &places)
    : state(std::make_unique<State>(models.alone(), sources, options, prefixes, constraints, std::vector<size_t>(),
                                    places,
                                    /*ownRows=*/true)) {}
SteppedSearch::~SteppedSearch() = default;
bool SteppedSearch::advance() { return state->advance(); }
bool SteppedSearch::ended(size_t sentence) const { return state->results[sentence].has_value(); }
std::vector<Hypothesis> SteppedSearch::hypotheses(size_t sentence) const {
  const auto &result = state->results[sentence];
  return result ? *result : state->workers->hypotheses(state->requests[sentence]);
}

std::vector<std::vector<Hypothesis>> search(const Ensemble &models, const std::vector<std::vector<int32_t>> &sources,
                                            const SearchOptions &options,
                                            const std::vector<std::vector<int32_t>> &prefixes,
                                            const std::vector<std::vector<Constraint>> &constraints,
                                            const std::function<void(size_t)> &done, const std::vector<size_t> &numbers,
                                            const std::vector<std::string> &places) {
  SentenceSet set(models, sources, options, prefixes, constraints, numbers, places, /*ownRows=*/false);
  while (set.advance(done)) {
  }
  std::vector<std::vector<Hypothesis>> found(sources.size());
  for (size_t sentence = 0; sentence < found.size(); ++sentence)
    found[sentence] = std::move(*set.results[sentence]);
  return found;
}

} // namespace xfc
