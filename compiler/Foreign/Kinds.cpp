// The kinds of files that models come in.
#include "Kinds.h"
#include "support/Error.h"
#include <filesystem>

namespace xfc {

const Kind &kindOf(const std::string &path) {
  static const std::vector<Kind> known = {
      {"a Hugging Face folder (config.json, and model.safetensors or its shards)", isHuggingFace, readHuggingFace},
      {"a CTranslate2 folder (model.bin)", isCtranslate2, readCtranslate2},
      {"an .npz file of Marian, or a folder with it", isMarian, readMarianFiles}};
  for (const Kind &kind : known)
    if (kind.is(path))
      return kind;
  std::string expected;
  for (const Kind &kind : known)
    expected += (expected.empty() ? "" : &kind == &known.back() ? ", or " : ", ") + kind.what;
  const bool isFolder = std::filesystem::is_directory(path);
  throw Error(path +
              (isFolder                        ? ": holds no model that is known"
               : std::filesystem::exists(path) ? ": is no model that is known"
                                               : ": is not there") +
              "; expected " + expected);
}

} // namespace xfc
