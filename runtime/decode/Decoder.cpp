// Answers requests for translations, many at a time.
#include "decode/Decoder.h"
#include "decode/Drafter.h"
#include "decode/Shortlist.h"
#include "plan/Memory.h"
#include "support/Error.h"
#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <mutex>

namespace xfc {

namespace {

// The state of the constraints after the forced beginning, as far as it is no longer than `most` tokens.
Constraints::State afterBeginning(const Constraints &constraints, const SearchOptions &options,
                                  std::span<const int32_t> prefix, size_t most) {
  const std::span<const int32_t> first = options.generation.forcedFirst;
  Constraints::State state = constraints.advance(constraints.start(), first.first(std::min(first.size(), most)));
  if (options.context.sentences > 0) // the prefix is of other sentences
    return state;
  return constraints.advance(std::move(state),
                             prefix.first(std::min(prefix.size(), most - std::min(first.size(), most))));
}

// The option that says how many hypotheses there are.
const char *widthOption(const SearchOptions &options) {
  return options.utility ? "--samples" : options.sample ? "--n-best" : "--beam";
}

// The name of a constraint in messages. Constraints of the settings come after those of the sentence.
std::string nameOf(size_t number, const Constraints &constraints, const SearchOptions &options) {
  const size_t own = constraints.count() - options.generation.requiredPhrases.size();
  return number < own ? "constraint " + std::to_string(number + 1)
                      : "--required-phrases " + std::to_string(number - own + 1);
}

} // namespace

void checkConstraints(const SearchSentence &sentence, const SearchOptions &options) {
  const std::string which = sentence.place() + ": ";
  if (options.draws())
    refuseConstraints(options, which);
  const Constraints &constraints = *sentence.constraints;
  const auto most = static_cast<size_t>(sentence.maxLength);
  const Constraints::State state = afterBeginning(constraints, options, sentence.prefix, most);
  const int64_t needed = constraints.needed(state);
  const size_t given = std::min(options.generation.forcedFirst.size() + sentence.prefix.size(), most);
  if (needed >= Constraints::never)
    throw Error(which + nameOf(constraints.impossible(state), constraints, options) +
                " cannot be met: --suppress, --bad-sequences or --no-repeat-ngram forbids each of its "
                "phrases");
  if (const auto left = static_cast<int64_t>(most - given); needed > left)
    throw Error(which + "the constraints need " + std::to_string(needed) + " tokens" +
                (given > 0 ? " after the " + std::to_string(given) + " of the forced beginning" : "") +
                ", but there is room for " + std::to_string(left) +
                "; give a larger --max-length (up to the model's), or fewer or shorter phrases");
}

std::unique_ptr<const Constraints> constraintsFor(const SearchOptions &options,
                                                  std::span<const Constraint> constraints) {
  std::vector<Constraint> all(constraints.begin(), constraints.end());
  all.insert(all.end(), options.generation.requiredPhrases.begin(), options.generation.requiredPhrases.end());
  return all.empty() ? nullptr : std::make_unique<const Constraints>(all, options.generation);
}

SearchSentence sentenceFor(const SearchOptions &options, size_t number, int64_t sourceLength,
                           std::span<const int32_t> prefix, int64_t longestTarget, const Constraints *constraints) {
  const Generation &generation = options.generation;
  SearchSentence sentence{number, generation.maxLength, generation.minLength, prefix, constraints};
  const auto times = [&](double ratio) {
    return static_cast<int64_t>(std::min(std::ceil(ratio * static_cast<double>(sourceLength)), 1.0 * mostTokens));
  };
  auto given = static_cast<int64_t>(generation.forcedFirst.size() + prefix.size());
  if (constraints)
    if (const int64_t needed = constraints->needed(afterBeginning(*constraints, options, prefix, mostTokens));
        needed < Constraints::never)
      given += needed;
  sentence.minLength = std::max(sentence.minLength, times(generation.minLengthRatio));
  const int64_t usual = generation.maxLengthRatio > 0 ? times(generation.maxLengthRatio) : 2 * sourceLength + 10;
  if (sentence.maxLength == 0)
    sentence.maxLength = std::max({usual, sentence.minLength, given});
  else if (generation.maxLengthRatio > 0)
    sentence.maxLength = std::min(sentence.maxLength, std::max({usual, sentence.minLength, given}));
  sentence.minLength = std::min(sentence.minLength, sentence.maxLength);
  if (longestTarget > 0) // the decoder reads start and, if eos follows, every token
    sentence.maxLength =
        std::min(sentence.maxLength, longestTarget - (searchSteps(sentence, options) - sentence.maxLength));
  return sentence;
}

int64_t draftsOf(const SearchOptions &options, int64_t tokens) { return searchWidth(options) == 1 ? tokens : 0; }

Counts roomFor(const SearchSentence &sentence, const SearchOptions &options, int64_t sourceLength, bool readsHistory,
               int64_t drafts) {
  const int64_t width = searchWidth(options), steps = searchSteps(sentence, options), rows = width * (1 + drafts);
  const int64_t cached = rowsOfHypothesis(readsHistory, steps);
  Counts counts;
  counts.rows[XFC_SOURCE] = sourceLength;
  counts.sequences[XFC_SOURCE] = 1;
  counts.rows[XFC_TARGET] = counts.sequences[XFC_TARGET] = rows;
  counts.rows[XFC_CACHE] = width * cached;
  for (int kind = 0; kind < 4; ++kind) {
    counts.pairs[XFC_SOURCE_SOURCE * 4 + kind] = sourceLength * sourceLength;
    counts.pairs[XFC_TARGET_SOURCE * 4 + kind] = rows * sourceLength;
    counts.pairs[XFC_TARGET_CACHE * 4 + kind] = rows * cached;
  }
  counts.longest = std::max(sourceLength, steps);
  return counts;
}

void add(Counts &sum, const Counts &counts, int64_t times) {
  for (int set = 0; set < XFC_ROW_SETS; ++set) {
    sum.rows[set] += times * counts.rows[set];
    sum.sequences[set] += times * counts.sequences[set];
  }
  for (int keys = 0; keys < XFC_KEY_STRUCTURES; ++keys)
    sum.pairs[keys] += times * counts.pairs[keys];
  sum.longest = std::max(sum.longest, counts.longest);
}

// The requests that wait, and how many rows of steps are left for all decoders that share them.
struct Decoder::Queue {
  std::mutex mutex;
  std::deque<std::unique_ptr<Sentence>> waiting;
  RequestId nextId = 0;
  int64_t decoders = 1;
  int64_t rows = 0; // of the steps of those that wait and those that run
};

// Each running sentence of a group is one chunk, which reads its own rows of a step's result.
struct Decoder::Choice {
  const std::vector<std::unique_ptr<Sentence>> *running = nullptr;
  std::vector<int64_t> rows;          // the first row of each sentence
  std::vector<SearchScratch> scratch; // one per thread
  StepResult result = {};
  static void run(void *context, int64_t i, int thread) {
    auto *choice = static_cast<Choice *>(context);
    (*choice->running)[i]->search->choose(choice->result, choice->rows[i], choice->scratch[thread]);
  }
};

Decoder::Decoder(std::unique_ptr<SearchedModel> model, const Counts &capacity, ThreadPool *pool)
    : Decoder(std::move(model), nullptr, 0, capacity, pool) {}

Decoder::Decoder(std::unique_ptr<SearchedModel> given, std::unique_ptr<Drafter> givenDrafter, int64_t tokens,
                 const Counts &capacity, ThreadPool *pool)
    : model(std::move(given)), drafter(std::move(givenDrafter)), draftTokens(drafter ? tokens : 0),
      vocabulary(model->vocabulary()), capacity(capacity), pool(pool), slots(capacity.rows[XFC_CACHE]),
      queue(std::make_shared<Queue>()), choice(std::make_unique<Choice>()) {
  choice->scratch.resize(pool ? pool->threads() : 1);
}

Decoder::~Decoder() = default;

void Decoder::prepare(const SearchOptions &options) { groupOf(options, /*constrained=*/shortlist != nullptr); }

size_t Decoder::groupOf(const SearchOptions &options, bool constrained) {
  const size_t group = model->groupOf(options, constrained);
  if (group >= groups.size())
    groups.resize(group + 1);
  while (drafter && draftGroups.size() <= group)
    draftGroups.push_back(drafter->groupOf(options));
  return group;
}

size_t Decoder::groupOf(const Sentence &sentence) {
  const std::shared_ptr<const SearchOptions> &options = sentence.request.options;
  if (const bool constrained = sentence.constraints || shortlist;
      options != lastOptions || constrained != lastConstrained) {
    lastGroup = groupOf(*options, constrained);
    lastOptions = options;
    lastConstrained = constrained;
  }
  return lastGroup;
}

void Decoder::shareQueueOf(Decoder &first) {
  queue = first.queue;
  ++queue->decoders;
}

size_t Decoder::waitingCount() const {
  const std::lock_guard<std::mutex> lock(queue->mutex);
  return queue->waiting.size();
}

RequestId Decoder::submit(DecoderRequest request) {
  auto sentence = std::make_unique<Sentence>();
  sentence->constraints = constraintsFor(*request.options, request.constraints);
  sentence->request = std::move(request);
  groupOf(*sentence); // of another decoder, it may be another number, but it has one there as well
  const auto &[source, prefix, constraints, options, number, where, watched] = sentence->request;
  const auto length = static_cast<int64_t>(source.size());
  sentence->limits = sentenceFor(*options, number, length, prefix, model->longestTarget(), sentence->constraints.get());
  sentence->limits.where = where;
  if (shortlist) {
    sentence->listed = shortlist->tokensFor(source, options->generation, prefix, constraints, vocabulary.eos);
    sentence->limits.listed = sentence->listed;
  }
  if (sentence->constraints)
    checkConstraints(sentence->limits, *options);
  sentence->drafts = draftsOf(*options, draftTokens);
  sentence->room = roomFor(sentence->limits, *options, length, model->readsHistory(), sentence->drafts);
  if (!isRoom(sentence->room))
    throw Error(sentence->limits.place() + " takes more than all of the room that is reserved (" +
                std::to_string(length) + " source tokens of " + std::to_string(capacity.rows[XFC_SOURCE]) + ", " +
                std::to_string(sentence->room.rows[XFC_CACHE]) + " tokens of hypotheses of " +
                std::to_string(capacity.rows[XFC_CACHE]) + "); give a shorter one, a smaller " + widthOption(*options) +
                " or --max-length");
  const std::lock_guard<std::mutex> lock(queue->mutex);
  const RequestId id = sentence->id = queue->nextId++;
  queue->rows += sentence->room.rows[XFC_TARGET];
  queue->waiting.push_back(std::move(sentence));
  return id;
}

void Decoder::StepRows::clear() {
  for (std::vector<int32_t> *numbers : {&ids, &wanted, &placeOf, &positions, &slots})
    numbers->clear();
  history.clear();
}

bool Decoder::isRoom(const Counts &room) const { return within(room, capacity) && room.longest <= capacity.longest; }

bool Decoder::hasRoomFor(const SearchOptions &options, int64_t sourceLength, std::span<const int32_t> prefix) const {
  return isRoom(roomFor(sentenceFor(options, 0, sourceLength, prefix, model->longestTarget()), options, sourceLength,
                        model->readsHistory(), draftsOf(options, draftTokens)));
}

void Decoder::cancel(RequestId id) {
  const auto is = [&](const std::unique_ptr<Sentence> &sentence) { return sentence->id == id; };
  {
    const std::lock_guard<std::mutex> lock(queue->mutex);
    if (const auto found = std::ranges::find_if(queue->waiting, is); found != queue->waiting.end()) {
      queue->rows -= (*found)->room.rows[XFC_TARGET];
      queue->waiting.erase(found);
      return;
    }
  }
  for (auto &group : groups)
    if (const auto found = std::ranges::find_if(group, is); found != group.end()) {
      (*found)->search->abandon(slots);
      leave(**found);
      group.erase(found);
      return;
    }
}

size_t Decoder::takePlace() {
  if (freePlaces.empty())
    return places++;
  const size_t place = freePlaces.back();
  freePlaces.pop_back();
  return place;
}

void Decoder::leave(Sentence &sentence) {
  add(used, sentence.room, -1);
  if (sentence.drafts > 0)
    drafter->leave(sentence.place);
  model->leave(sentence.place);
  freePlaces.push_back(sentence.place);
  const std::lock_guard<std::mutex> lock(queue->mutex);
  queue->rows -= sentence.room.rows[XFC_TARGET];
}

// Takes the sentences that have waited longest, in their order, as far as there is room; false if there are none. Of
// several decoders, one that has its share of the work leaves them to the others, of which one has less.
bool Decoder::takeWaiting() {
  const std::lock_guard<std::mutex> lock(queue->mutex);
  auto &waiting = queue->waiting;
  Counts all = used;
  std::ptrdiff_t count = 0;
  int64_t rows = 0;
  bool full = false;
  for (; count < std::ssize(waiting) && all.rows[XFC_TARGET] * queue->decoders < queue->rows; ++count) {
    Counts more = all;
    add(more, waiting[count]->room);
    full = !within(more, capacity);
    if (full)
      break;
    all = more;
    rows += waiting[count]->room.rows[XFC_SOURCE];
  }
  if (count == 0 || (running() > 0 && full && rows < model->fewestRows()))
    return false;
  used = all;
  arrived.assign(std::make_move_iterator(waiting.begin()), std::make_move_iterator(waiting.begin() + count));
  waiting.erase(waiting.begin(), waiting.begin() + count);
  return true;
}

void Decoder::join() {
  if (!takeWaiting())
    return;
  for (const std::unique_ptr<Sentence> &sentence : arrived)
    sentence->group = groupOf(*sentence);
  for (size_t group = 0; group < groups.size(); ++group) {
    joining.clear();
    for (const std::unique_ptr<Sentence> &sentence : arrived)
      if (sentence->group == group) {
        sentence->place = takePlace();
        joining.push_back({sentence->place, sentence->request.source});
      }
    if (!joining.empty())
      model->join(group, joining);
    joining.clear();
    for (const std::unique_ptr<Sentence> &sentence : arrived)
      if (sentence->group == group && sentence->drafts > 0)
        joining.push_back({sentence->place, sentence->request.source});
    if (!joining.empty())
      drafter->join(draftGroups[group], joining);
  }
  for (std::unique_ptr<Sentence> &sentence : arrived) {
    sentence->search = std::make_unique<SentenceSearch>(sentence->limits, vocabulary, *sentence->request.options);
    groups[sentence->group].push_back(std::move(sentence));
  }
  arrived.clear();
}

// Takes the sentences that have ended out of their places.
void Decoder::collect() {
  for (auto &group : groups)
    std::erase_if(group, [&](const std::unique_ptr<Sentence> &sentence) {
      if (!sentence->search->ended())
        return false;
      events.push_back({DecoderEvent::Kind::Finished, sentence->id, std::move(*sentence->search).best()});
      leave(*sentence);
      return true;
    });
}

std::span<DecoderEvent> Decoder::step() {
  events.clear();
  do { // some sentences end before their first step
    join();
    collect();
  } while (running() == 0 && waitingCount() > 0);
  rowsStepped = 0;
  for (size_t group = 0; group < groups.size(); ++group)
    if (!groups[group].empty())
      step(group);
  collect();
  return events;
}

// Drafts how the hypotheses of the group's sentences go on, as far as steps may follow.
void Decoder::draft(size_t group) {
  drafts.clear();
  const std::vector<std::unique_ptr<Sentence>> &running = groups[group];
  if (std::ranges::all_of(running, [](const auto &sentence) { return sentence->drafts == 0; }))
    return;
  for (const std::unique_ptr<Sentence> &sentence : running) {
    const std::span<const LiveHypothesis> live = sentence->search->live();
    const std::vector<int32_t> &written = live.front().ids;
    const int64_t left = searchSteps(sentence->limits, *sentence->request.options) - 1 - std::ssize(written);
    drafts.push_back({.place = sentence->place,
                      .search = sentence->search.get(),
                      .ids = written,
                      .most = static_cast<size_t>(std::clamp<int64_t>(left, 0, sentence->drafts))});
  }
  drafter->draft(draftGroups[group], drafts);
}

// Takes the continuations that were chosen, by the row of the step's result with this number. If they are what was
// drafted, the next row tells what follows.
void Decoder::grow(Sentence &sentence, const DraftRequest *draft, size_t number) {
  SentenceSearch &search = *sentence.search;
  if (!draft)
    return search.grow(slots);
  const int64_t first = choice->rows[number];
  const std::span<const int32_t> all = asked.slots;
  const auto rows = all.subspan(static_cast<size_t>(first) + 1, draft->tokens.size()); // of the drafted tokens
  const std::span<LiveHypothesis> live = search.live();
  std::vector<int32_t> &read = live.front().history;
  read.resize(read.size() - rows.size()); // what is drafted belongs to it once it is chosen
  size_t accepted = 0;
  const auto releaseOthers = [&] {
    for (const int32_t row : rows.subspan(accepted))
      slots.release(row);
  };
  try {
    for (search.grow(slots); accepted < rows.size() && !search.ended(); search.grow(slots)) {
      LiveHypothesis &hypothesis = search.live().front();
      if (hypothesis.ids.back() != draft->tokens[accepted])
        break;
      hypothesis.history.push_back(rows[accepted++]);
      search.choose(choice->result, first + static_cast<int64_t>(accepted), choice->scratch.front());
    }
  } catch (const Error &) {
    releaseOthers();
    throw;
  }
  releaseOthers();
}

void Decoder::step(size_t group) {
  std::vector<std::unique_ptr<Sentence>> &running = groups[group];
  asked.clear();
  choice->rows.clear();
  draft(group);
  for (size_t i = 0; i < running.size(); ++i) {
    const Sentence &sentence = *running[i];
    choice->rows.push_back(static_cast<int64_t>(asked.ids.size()));
    const auto addRow = [&](LiveHypothesis &hypothesis, int32_t token, size_t later) {
      asked.ids.push_back(token);
      asked.wanted.push_back(sentence.search->wanted(static_cast<int64_t>(later)));
      asked.placeOf.push_back(static_cast<int32_t>(sentence.place));
      asked.positions.push_back(static_cast<int32_t>(hypothesis.ids.size() + later));
      asked.slots.push_back(slots.take());
      hypothesis.history.push_back(asked.slots.back());
    };
    for (LiveHypothesis &hypothesis : sentence.search->live()) {
      if (!model->readsHistory() && hypothesis.history.size() == 2) {
        slots.release(hypothesis.history.front());
        hypothesis.history.erase(hypothesis.history.begin());
      }
      addRow(hypothesis, hypothesis.ids.empty() ? vocabulary.start : hypothesis.ids.back(), 0);
      const size_t own = hypothesis.history.size();
      if (!drafts.empty())
        for (const int32_t token : drafts[i].tokens)
          addRow(hypothesis, token, hypothesis.history.size() - own + 1);
      for (size_t end = own; end <= hypothesis.history.size(); ++end)
        asked.history.push_back(std::span(hypothesis.history).first(end));
    }
  }
  rowsStepped += static_cast<int64_t>(asked.ids.size());
  choice->running = &running;
  choice->result = model->step(group, asked.request());
  if (pool)
    pool->run(Choice::run, choice.get(), static_cast<int64_t>(running.size()));
  else
    for (size_t i = 0; i < running.size(); ++i)
      Choice::run(choice.get(), static_cast<int64_t>(i), 0);
  size_t number = 0;
  std::erase_if(running, [&](const std::unique_ptr<Sentence> &sentence) {
    try {
      const size_t own = number++;
      grow(*sentence, drafts.empty() ? nullptr : &drafts[own], own);
      if (sentence->request.watched && !sentence->search->ended()) {
        const std::span<LiveHypothesis> live = sentence->search->live();
        const std::vector<int32_t> &best = live.front().ids;
        const auto settled = static_cast<std::ptrdiff_t>(sentence->search->settled());
        events.push_back({.kind = DecoderEvent::Kind::Grown,
                          .id = sentence->id,
                          .found = {},
                          .settled = {best.begin(), best.begin() + settled}});
      }
      return false;
    } catch (const Error &error) {
      events.push_back({.kind = DecoderEvent::Kind::Failed,
                        .id = sentence->id,
                        .found = {},
                        .message = error.what(),
                        .byOptions = dynamic_cast<const NothingLeft *>(&error) != nullptr});
      sentence->search->abandon(slots);
      leave(*sentence);
      return true;
    }
  });
}

const Decoder::Sentence *Decoder::find(RequestId id) const {
  for (const auto &group : groups)
    for (const std::unique_ptr<Sentence> &sentence : group)
      if (sentence->id == id)
        return sentence.get();
  return nullptr;
}

std::vector<Hypothesis> Decoder::hypotheses(RequestId id) const {
  const Sentence *sentence = find(id);
  return sentence ? sentence->search->unfinished() : std::vector<Hypothesis>();
}

} // namespace xfc
