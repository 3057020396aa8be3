// Text into token ids and back: by a tokenizer, as its pieces separated by blanks, or as plain ids.
#pragma once

#include "plan/Plan.h"
#include "tokenizers/Tokenizer.h"
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

enum class Format { Text, Pieces, Ids };

class Vocabulary {
public:
  // Text and pieces need a tokenizer, of any kind that makeTokenizer() knows; throws Error if it cannot be read or has
  // other ids than the `expected` ones, 0 to expected-1 (0: any).
  Vocabulary(const std::string &file, int64_t expected);
  // From a file's contents (of a packed executable); `name` for messages.
  static Vocabulary fromBytes(std::string_view bytes, const std::string &name, int64_t expected);
  // Ids only, 0..size-1.
  explicit Vocabulary(int64_t size);
  ~Vocabulary();
  Vocabulary(Vocabulary &&) noexcept;

  // The tokens of the line itself. `where` (file:line) is for messages. Where a line has more than `most` tokens (0:
  // any number), those after them may be left out, so that a line of megabytes costs no more than what is used of it.
  std::vector<int32_t> encode(std::string_view line, Format format, const std::string &where, int64_t most = 0) const;
  // What stands around a source line's tokens, and what stands between start and a target line's tokens: the
  // tokenizer's frame, or the eos that the model asks for. Nothing around ids, which are taken as they are.
  Frame sourceFrame(const Module &module, Format format) const;
  std::vector<int32_t> targetPrefix(Format format) const;
  std::string decode(const std::vector<int32_t> &ids, Format format) const;
  std::string piece(int32_t id) const; // the id itself without a tokenizer
  int64_t size() const;                // one more than the largest id
  SpecialTokens special() const;       // all -1 without a tokenizer
  const std::string &name() const;     // its file
  const std::string &bytes() const;    // of the file, to be copied beside a checkpoint
  std::string hash() const;
  // Throws Error where pad or eos is another id than the model has been compiled for, as far as the file names them.
  void checkTokens(const Module &module) const;

private:
  std::vector<int32_t> encodeAll(std::string_view line, Format format, const std::string &where) const;
  struct State;
  explicit Vocabulary(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

// The tokens of a line with what stands around them; nothing stands around none.
std::vector<int32_t> framed(std::vector<int32_t> ids, const Frame &frame);

// Names of the vocabularies in a folder that `train` or `xfc import` made; the second only if there are two.
inline constexpr const char *folderVocabulary = "vocab.model";
inline constexpr const char *folderTargetVocabulary = "target-vocab.model";

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
