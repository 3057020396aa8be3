// Converts text to token ids and back: with a tokenizer, as pieces separated by blanks, or as plain ids.
#pragma once

#include "plan/Plan.h"
#include "tokenizers/Tokenizer.h"
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

enum class Format { Text, Pieces, Ids };

class Vocabulary {
public:
  // Text and pieces need a tokenizer, of any kind that makeTokenizer() knows. Throws Error if it cannot be read, or if
  // its ids are not the `expected` ones, 0 to expected-1 (0: any).
  Vocabulary(const std::string &file, int64_t expected);
  // From a file's contents (in a packed executable); `name` is for messages.
  static Vocabulary fromBytes(std::string_view bytes, const std::string &name, int64_t expected);
  // Ids only, 0..size-1.
  explicit Vocabulary(int64_t size);
  ~Vocabulary();
  Vocabulary(Vocabulary &&) noexcept;

  // The tokens of the line itself, without a frame. `where` (file:line) is for messages. If a line has more than `most`
  // tokens (0: no limit), the tokens after those may be missing: a line of megabytes then costs no more than the part
  // that is used.
  std::vector<int32_t> encode(std::string_view line, Format format, const std::string &where, int64_t most = 0) const;
  // The tokens of a random segmentation, which is drawn from the generator. To be called only if canSample().
  std::vector<int32_t> sample(std::string_view line, const SegmentationSampling &sampling) const;
  bool canSample() const;
  // The tokens around a source line, and those between start and the tokens of a target line: the tokenizer's frame, or
  // the eos that the model expects. None for ids, which are taken verbatim.
  Frame sourceFrame(const Module &module, Format format) const;
  std::vector<int32_t> targetPrefix(Format format) const;
  // `unknowns`, if not empty, stand for the unknown tokens among the ids, in their order.
  std::string decode(const std::vector<int32_t> &ids, Format format, std::span<const std::string> unknowns = {}) const;
  // The pieces of the ids that encode() gave for a line; of those that are unknown, what stands in the line.
  std::vector<std::string> pieces(std::span<const int32_t> ids, std::string_view line, Format format) const;
  bool fromEnd() const;                   // whether the tokens of a line are in the opposite order of its text
  std::string piece(int32_t id) const;    // without a tokenizer, the id itself
  int64_t size() const;                   // one more than the largest id
  SpecialTokens special() const;          // all -1 without a tokenizer
  std::vector<std::string> notes() const; // what the file says that has no effect here
  const std::string &name() const;        // its file
  const std::string &bytes() const;       // the file's contents, to be copied next to a checkpoint
  std::string hash() const;
  // Throws Error if pad or eos, as far as the file defines them, differ from the ids that the model was compiled for.
  void checkTokens(const Module &module) const;

private:
  std::vector<int32_t> encodeAll(std::string_view line, Format format, const std::string &where) const;
  struct State;
  explicit Vocabulary(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

// Adds the frame to a line's tokens; an empty line gets no frame.
std::vector<int32_t> framed(std::vector<int32_t> ids, const Frame &frame);

// File names of the vocabularies in a folder written by `train` or `xfc import`; the second exists only if there are
// two.
inline constexpr const char *folderVocabulary = "vocab.model";
inline constexpr const char *folderTargetVocabulary = "target-vocab.model";

// The vocabularies of the two languages.
struct VocabularyPair {
  const Vocabulary &source, &target;
  // A note for each thing that their files say and that has no effect here.
  std::vector<std::string> notes() const;
};

// Loads the files given by --vocab and --target-vocab for this model: one for both languages if only one is given and
// both have the same size, and ids only if none is given. Throws Error as Vocabulary does.
struct LoadedVocabularies {
  std::shared_ptr<const Vocabulary> source, target;
  VocabularyPair pair() const { return {*source, *target}; }
};
LoadedVocabularies loadVocabularies(const std::string &file, const std::string &targetFile, const Module &module);

} // namespace xfc
