// Answers requests for translations, many at a time. A request may come, and be cancelled, between any two steps; a
// step extends every hypothesis of all running sentences by one token. What a request is answered does not depend on
// the others: its options, its random numbers and its number are its own. BeamSearch.h states the rules of the search.
//
// Requests wait in the order in which they come, and run as soon as there is room. The room is fixed, so memory is
// known before the first request, and is the same after the millionth. Requests run together if their options lead to
// the same programs, and otherwise in groups, each of which takes its own step; all share the room.
#pragma once

#include "decode/BeamSearch.h"
#include "plan/Plan.h"
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace xfc {

// A sentence that begins to run. Its place is a small number that it keeps until it leaves, and that others take then.
struct JoiningSentence {
  size_t place;
  std::span<const int32_t> source;
};

// The request of a step: row h is a live hypothesis (see Batch::assignStep) of the sentence at place placeOf[h], ids[h]
// is the token it reads, and wanted[h] a token whose log-probability is needed whatever its rank: the one that the
// hypothesis must take next, or eos. Hypotheses of a sentence are adjacent.
struct StepRequest {
  std::span<const int32_t> ids;
  std::span<const int32_t> wanted;
  std::span<const int32_t> placeOf;
  std::span<const int32_t> positions;
  std::span<const int32_t> slots;
  std::span<const std::span<const int32_t>> history;
};

// The model as a decoder sees it.
class SearchedModel {
public:
  virtual ~SearchedModel() = default;
  virtual SearchVocabulary vocabulary() const = 0;
  // The most tokens that the decoder reads of a sentence, start included; 0: any number.
  virtual int64_t longestTarget() const { return 0; }
  // Whether steps read the rows of all tokens of a hypothesis. If not, only the rows of its last two are kept.
  virtual bool readsHistory() const { return true; }
  // While more sentences wait than find room, fewer source rows than these do not join: reading the encoder's weights
  // would take longer than they are worth.
  virtual int64_t fewestRows() const { return 1; }
  // The group to which requests with these options belong, from 0. If they are `constrained`, its steps give all
  // log-probabilities. Throws Error if the model cannot be searched so.
  virtual size_t groupOf(const SearchOptions &options, bool constrained) = 0;
  virtual void join(size_t group, std::span<const JoiningSentence> sentences) = 0;
  // A step of all running sentences of a group.
  virtual StepResult step(size_t group, const StepRequest &request) = 0;
  // The sentence has ended.
  virtual void leave(size_t place) = 0;
};

// The lengths of a sentence's translations under these options. What is not limited by maxLength has room for the
// prefix and the constraints, of which there may be none (null).
SearchSentence sentenceFor(const SearchOptions &options, size_t number, int64_t sourceLength,
                           std::span<const int32_t> prefix, int64_t longestTarget,
                           const Constraints *constraints = nullptr);
// The given constraints of a sentence, and after them those of the settings; null: there are none.
std::unique_ptr<const Constraints> constraintsFor(const SearchOptions &options,
                                                  std::span<const Constraint> constraints);
// Throws Error if no translation of the sentence can meet its constraints, of which there are some.
void checkConstraints(const SearchSentence &sentence, const SearchOptions &options);
// How many tokens are drafted at a time for the sentences of a search with these options, if `tokens` are for those
// that can have drafts: their only hypothesis is written token by token.
int64_t draftsOf(const SearchOptions &options, int64_t tokens);
// The room that it takes: the rows and pairs of its source, and of all its hypotheses at their longest, each with so
// many drafted tokens.
Counts roomFor(const SearchSentence &sentence, const SearchOptions &options, int64_t sourceLength, bool readsHistory,
               int64_t drafts);
// Adds counts to a sum.
void add(Counts &sum, const Counts &counts, int64_t times = 1);

struct DecoderRequest {
  std::vector<int32_t> source; // includes eos if the model wants one; not empty
  std::vector<int32_t> prefix; // the forced beginning
  std::vector<Constraint> constraints = {};
  std::shared_ptr<const SearchOptions> options;
  size_t number = 0;      // keys random numbers
  std::string where = {}; // names the sentence in errors; empty: its number does, from 1
  bool watched = false;   // whether there is an event for each token
};

using RequestId = uint64_t;

struct DecoderEvent {
  enum class Kind : uint8_t {
    Grown,    // the hypotheses of a watched request have a token more
    Finished, // the request is answered, and gone
    Failed,   // there is no answer, and the request is gone
  };
  Kind kind;
  RequestId id;
  std::vector<Hypothesis> found;     // if finished: best first, at most nBest, or those among which chosen() chooses
  std::vector<int32_t> settled = {}; // if grown: the tokens at the beginning that no later step will change
  std::string message = {};          // if failed
  bool byOptions = false;            // if failed: what was asked for leaves no answer, and the model is as it should be
};

class Drafter;
struct DraftRequest;
class Shortlist;

// To be used from one thread. Several decoders may share what waits (decode/Workers.h), each of them used from a thread
// of its own; then the first is asked, and any of them answers.
class Decoder {
public:
  // Running sentences stay within `capacity`. If there is a pool, its threads rank the continuations of different
  // sentences.
  Decoder(std::unique_ptr<SearchedModel> model, const Counts &capacity, ThreadPool *pool = nullptr);
  // With a drafter (decode/Drafter.h), which drafts `tokens` tokens at a time: the model can read several tokens of a
  // hypothesis in a step.
  Decoder(std::unique_ptr<SearchedModel> model, std::unique_ptr<Drafter> drafter, int64_t tokens,
          const Counts &capacity, ThreadPool *pool = nullptr);
  // From now on, requests may write only what this lists for their sources. Null: all tokens. It must outlive them.
  void takeShortlist(const Shortlist *list) { shortlist = list; }
  // From now on, it also answers what `first` is asked, which is of the same models and has the same capacity. Before
  // the first request.
  void shareQueueOf(Decoder &first);
  ~Decoder();

  // Reserves what requests with these options need. Optional: submit() does it. Throws Error as submit() does.
  void prepare(const SearchOptions &options);
  // Ids are consecutive. Throws Error if the options are wrong, the model cannot be searched so, no translation can
  // meet the constraints, or the sentence alone takes more than the capacity; the decoder goes on then as if it had not
  // been asked.
  RequestId submit(DecoderRequest request);
  // Whether such a sentence, without constraints, takes no more than the capacity.
  bool hasRoomFor(const SearchOptions &options, int64_t sourceLength, std::span<const int32_t> prefix) const;
  // Frees the place of a request, of which there are no more events. Does nothing if it has ended.
  void cancel(RequestId id);

  // Takes one step of all running sentences, after those that wait have joined as far as there is room. Returns what
  // happened, in an order that is the same whenever the same requests come at the same steps; it is valid until the
  // next call. An Error that it throws is the device's; nothing goes on after it.
  std::span<DecoderEvent> step();

  bool idle() const { return running() == 0 && waitingCount() == 0; }
  size_t waitingCount() const; // for all decoders that share what waits
  size_t running() const { return static_cast<size_t>(used.sequences[XFC_SOURCE]); }
  // How many hypotheses the last step extended, of which capacity.rows[XFC_TARGET] is the limit.
  int64_t stepRows() const { return rowsStepped; }

  // The live hypotheses of a running request, the most probable first, with the scores that they would have if they
  // ended now; nothing for one that waits or has ended.
  std::vector<Hypothesis> hypotheses(RequestId id) const;

private:
  // A request, and its search once it runs.
  struct Sentence {
    RequestId id;
    DecoderRequest request;
    std::unique_ptr<const Constraints> constraints;
    std::vector<int32_t> listed; // tokens, of a shortlist
    SearchSentence limits;
    Counts room;
    size_t group, place = 0;
    int64_t drafts = 0; // the most drafted tokens of a step
    std::unique_ptr<SentenceSearch> search;
  };
  // The arrays that a StepRequest refers to.
  struct StepRows {
    std::vector<int32_t> ids, wanted, placeOf, positions, slots;
    std::vector<std::span<const int32_t>> history;
    void clear();
    StepRequest request() const { return {ids, wanted, placeOf, positions, slots, history}; }
  };
  struct Queue;
  struct Choice;

  size_t groupOf(const SearchOptions &options, bool constrained);
  size_t groupOf(const Sentence &sentence);
  bool isRoom(const Counts &room) const;
  size_t takePlace();
  bool takeWaiting();
  void join();
  void step(size_t group);
  void draft(size_t group);
  void grow(Sentence &sentence, const DraftRequest *draft, size_t number);
  void collect();
  void leave(Sentence &sentence);
  const Sentence *find(RequestId id) const;

  std::unique_ptr<SearchedModel> model;
  std::unique_ptr<Drafter> drafter; // or null
  const int64_t draftTokens;
  const Shortlist *shortlist = nullptr;
  const SearchVocabulary vocabulary;
  const Counts capacity;
  ThreadPool *pool;
  CacheRows slots;
  Counts used; // by the running sentences
  std::shared_ptr<Queue> queue;
  std::vector<std::unique_ptr<Sentence>> arrived;             // from the queue, in its order, and not running yet
  std::vector<std::vector<std::unique_ptr<Sentence>>> groups; // the running ones of each
  std::vector<size_t> draftGroups;                            // the drafter's group for each of these
  std::vector<size_t> freePlaces;
  size_t places = 0; // how many have been taken so far
  int64_t rowsStepped = 0;
  std::vector<DecoderEvent> events;
  // The options that came last, which usually are also those of the next request.
  std::shared_ptr<const SearchOptions> lastOptions;
  bool lastConstrained = false;
  size_t lastGroup = 0;
  // What steps and joins are given, kept so that they do not allocate.
  StepRows asked;
  std::vector<JoiningSentence> joining;
  std::vector<DraftRequest> drafts; // of the sentences of a group, in their order; empty: nothing is drafted
  std::unique_ptr<Choice> choice;
};

} // namespace xfc
