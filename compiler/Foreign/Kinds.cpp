// The kinds of files that models come in.
#include "Kinds.h"
#include "Pickles.h"
#include "support/Error.h"
#include "support/Files.h"
#include <filesystem>

namespace xfc {

const Kind &kindOf(const std::string &path) {
  static const std::vector<Kind> known = {
      {"a Hugging Face folder (config.json, and model.safetensors or its shards)", isHuggingFace, readHuggingFace},
      {"a CTranslate2 folder (model.bin)", isCtranslate2, readCtranslate2},
      {"a Marian .npz file, or a folder with one", isMarian, readMarianFiles}};
  for (const Kind &kind : known)
    if (kind.is(path))
      return kind;
  if (const std::string pickle = findPickle(path); !pickle.empty())
    throw Error(pickle + ": is " + adviceAboutPickles());
  std::string expected;
  for (const Kind &kind : known)
    expected += (expected.empty() ? "" : &kind == &known.back() ? ", or " : ", ") + kind.what;
  throw Error(path +
              (isFolder(path) ? ": contains no model of a known kind"
               : exists(path) ? ": is not a model of a known kind"
                              : ": does not exist") +
              "; expected " + expected);
}

} // namespace xfc
