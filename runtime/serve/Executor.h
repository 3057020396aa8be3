// A thread that owns a model and translates with it: what clients ask for is batched as it comes.
#pragma once

#include "decode/ModelOptions.h"
#include "decode/Translations.h"
#include "serve/AlignmentRoom.h"
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace xfc {

struct TranslationUpdate {
  enum class Kind : uint8_t {
    Tokens,  // a line has more tokens, of a job that streams
    Line,    // a line is translated
    Done,    // and it was the last one
    Refused, // the options or the lines are wrong, or no translation is as they want it
    Busy,    // there is no room for the answer, as long as others are not read
    Failed,  // there is no translation, or there is none any more
  };
  Kind kind;
  size_t line = 0;
  std::vector<int32_t> ids;          // of Tokens: those that are new
  std::string text;                  // of Tokens: what they add to the text; of Refused, Busy and Failed: why
  TranslatedLine found;              // of Line
  std::vector<std::string> warnings; // of Done
};

// Lines that are translated together, as the verb `translate` does it with a file of them.
struct TranslationJob {
  std::vector<std::string> lines;
  std::vector<std::string> prefixes;                    // one for each line, or none
  std::vector<std::vector<ConstraintText>> constraints; // for each line, or none
  // How many of the lines are the sentences of each document, in their order; none: the lines are no documents.
  std::vector<size_t> documents;
  std::vector<std::string> options; // words, in place of the server's
  int alternatives = 0;             // more translations of each line; widens the beam, if it is too narrow for them
  bool stream = false;
  std::shared_ptr<HeldAlignments> held; // the room that its soft alignments take
  // Is called on the executor's thread. Nothing follows Done, Refused, Busy and Failed.
  std::function<void(TranslationUpdate)> tell;
};

// Numbers since the start. Any thread may read them.
struct ExecutorCounts {
  std::atomic<int64_t> sentences{0}, sourceTokens{0}, targetTokens{0}; // of what was translated
  std::atomic<int64_t> steps{0}, stepHypotheses{0};
  std::atomic<int64_t> waiting{0}, running{0}; // sentences, now
};

class Executor {
public:
  // Starts the thread, which loads the model and calls `loaded`, with a message if that failed. The search settings
  // that `generation` of the model gives apply unless `options` (words) say otherwise. parts() splits sentences of more
  // than `documentTokens` tokens (0: any number).
  Executor(const ModelOptions &model, const std::vector<std::string> &options, int64_t documentTokens,
           ExecutorCounts &counts, std::function<void(const std::string &)> loaded);
  // Forgets the jobs that are not done.
  ~Executor();
  void submit(const std::shared_ptr<const TranslationJob> &job);
  // The job's places become free. It may still be told something.
  void cancel(const std::shared_ptr<const TranslationJob> &job);
  // These two once the model is loaded. The hypotheses for which a step has room; and the parts of a sentence, views of
  // it, none of which is longer than what the model reads and a batch has room for: usually the sentence itself.
  int64_t capacity() const;
  std::vector<std::string_view> parts(std::string_view sentence) const;

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace xfc
