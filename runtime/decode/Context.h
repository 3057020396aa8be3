// Sentences of a document that are translated given those before them, for models that were trained on several
// consecutive sentences. With N of them as its context, a sentence s is translated from
//
//   s_1 | ... | s_N | s     into     t_1 | ... | t_N | t
//
// where | is the separator, and t_i is the translation of s_i. What precedes t is forced, as a prefix is, without the
// white space at its end, which belongs to the tokens that follow.
#pragma once

#include "decode/ModelOptions.h"
#include "decode/Search.h"
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace xfc {

// How many tokens of what the model reads, after those that the vocabulary puts before lines, and of what it writes,
// after forcedFirst, belong to the sentences before.
struct ContextTokens {
  size_t source = 0, target = 0;
};

struct SentenceInContext {
  std::vector<int32_t> source, prefix; // as a search takes them
  ContextTokens context;
};

// The sentences of a document that were translated so far.
class DocumentContext {
public:
  // Takes the next sentence and its best translation. One without a translation, or with one that is no valid UTF-8, is
  // no context.
  void add(std::string_view source, std::string_view translation);
  // Whether a search has room for a sentence and its forced beginning.
  using HasRoom = std::function<bool(std::span<const int32_t> source, std::span<const int32_t> prefix)>;
  // The next sentence, given as many of those before it as options.context says. The oldest are left out as far as
  // otherwise
  //  - the source, with its context, would be longer than the model reads, or than `most` tokens (0: any number),
  //  - the translation would have room for fewer tokens than twice those of its sentence plus 10, and than it has
  //    without a context, or
  //  - the forced beginning would hold pad, start or eos, or `hasRoom` is false.
  // The source is empty if there is nothing to translate in the sentence.
  SentenceInContext next(const TranslationModel &model, const std::string &sentence, const SearchOptions &options,
                         const std::string &where, int64_t most, const HasRoom &hasRoom = {}) const;

private:
  struct Sentence {
    std::string source, translation;
  };
  std::vector<Sentence> sentences;
};

} // namespace xfc
