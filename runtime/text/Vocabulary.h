// Text into token ids and back: SentencePiece, pieces separated by blanks, or plain ids.
#pragma once

#include "plan/Plan.h"
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

enum class Format { Text, Pieces, Ids };

class Vocabulary {
public:
  // Text and pieces need a SentencePiece model; throws Error if it cannot be read or its size is not `expected`
  // (0: any).
  Vocabulary(const std::string &file, int64_t expected);
  // From the bytes of a model (a packed executable); `name` for messages.
  static Vocabulary fromBytes(std::string_view bytes, const std::string &name, int64_t expected);
  // Ids only, 0..size-1.
  explicit Vocabulary(int64_t size);
  ~Vocabulary();
  Vocabulary(Vocabulary &&) noexcept;

  // Without bos and eos. `where` (file:line) is for messages. Where a line has more than `most` tokens (0: any number),
  // those after them may be left out, so that a line of megabytes costs no more than what is used of it.
  std::vector<int32_t> encode(std::string_view line, Format format, const std::string &where, int64_t most = 0) const;
  std::string decode(const std::vector<int32_t> &ids, Format format) const;
  std::string piece(int32_t id) const; // the id itself without a model
  const std::string &name() const;     // its file
  const std::string &bytes() const;    // the model, to be copied beside a checkpoint
  std::string hash() const;
  // Throws Error where pad or eos is another id than the model has been compiled for.
  void checkTokens(const Module &module) const;

private:
  std::vector<int32_t> encodeAll(std::string_view line, Format format, const std::string &where) const;
  struct State;
  explicit Vocabulary(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

// Those of the two languages.
struct VocabularyPair {
  const Vocabulary &source, &target;
};

// What --vocab and --target-vocab name, as far as they do, for this model: one for both languages, where one is named
// and they are of one size, and only ids where none is. Throws Error as Vocabulary does.
struct LoadedVocabularies {
  std::shared_ptr<const Vocabulary> source, target;
  VocabularyPair pair() const { return {*source, *target}; }
};
LoadedVocabularies loadVocabularies(const std::string &file, const std::string &targetFile, const Module &module);

} // namespace xfc
