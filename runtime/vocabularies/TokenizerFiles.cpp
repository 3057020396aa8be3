// Converts xfc vocabularies to the tokenizer files of folders for other programs.
#include "vocabularies/TokenizerFiles.h"
#include "support/Error.h"
#include "tokenizers/MappedSentencePiece.h"
#include "tokenizers/SentencePieceModel.h"
#include "tokenizers/Tokenizer.h"
#include <nlohmann/json.hpp>

namespace xfc {
namespace {

using Json = nlohmann::ordered_json;

class Side {
public:
  explicit Side(const std::string &contents)
      : contents(contents), tokenizer(makeTokenizer(contents, "the vocabulary")),
        mapped(contents.starts_with(mappedSentencePieceMagic)), json(!mapped && isJson(contents)) {
    if (tokenizer->fromEnd())
      throw Error("the model writes or reads lines from right to left, which other programs do not; it cannot be "
                  "exported");
  }

  const std::string &whole() const { return contents; }
  bool isMapped() const { return mapped; }
  bool isTokenizerJson() const { return json; }
  // A SentencePiece model, with or without a map of ids.
  bool isSentencePiece() const { return mapped || (!json && !isText(contents)); }
  std::string model() const {
    return mapped ? contents.substr(contents.find('\n', mappedSentencePieceMagic.size()) + 1) : contents;
  }
  // Whether T5's tokenizer reads the SentencePiece model rightly: it takes any for a unigram model whose unknown token
  // is 2.
  bool isOfT5() const { return isUnigramModel(model()) && tokenizer->special().unk == 2; }
  // The ids of all tokens for which `takes` holds.
  template <typename Takes> std::string map(Takes takes) const {
    Json ids = Json::object();
    auto &members = ids.get_ref<Json::object_t &>();
    for (int32_t id = 0; id < tokenizer->size(); ++id)
      if (std::string token = tokenizer->piece(id); !token.empty() && takes(token))
        members.emplace_back(std::move(token), id); // appended: to look for the key first would take quadratic time
    return ids.dump();
  }
  std::string map() const {
    return map([](const std::string &) { return true; });
  }
  // The tokens for which `takes` holds, in the order of their ids.
  template <typename Takes> Json list(Takes takes) const {
    Json tokens = Json::array();
    for (int32_t id = 0; id < tokenizer->size(); ++id)
      if (std::string token = tokenizer->piece(id); takes(token))
        tokens.push_back(std::move(token));
    return tokens;
  }
  // The token of the frame that is neither bos nor eos, "" if there is none; and whether it follows the line.
  std::string language() const {
    const Frame *frame = tokenizer->frame();
    for (const std::vector<int32_t> *part : {&frame->prefix, &frame->suffix})
      for (const int32_t id : frame ? *part : std::vector<int32_t>())
        if (id != tokenizer->special().eos && id != tokenizer->special().bos)
          return tokenizer->piece(id);
    return "";
  }
  bool languageFollows() const { return tokenizer->frame() && tokenizer->frame()->prefix.empty(); }
  int64_t count(const std::string &beginning) const {
    int64_t found = 0;
    for (int32_t id = 0; id < tokenizer->size(); ++id)
      found += tokenizer->piece(id).starts_with(beginning);
    return found;
  }
  void addTokens(Json &settings) const {
    const SpecialTokens special = tokenizer->special();
    for (auto [key, id] : {std::pair("pad_token", special.pad), std::pair("unk_token", special.unk),
                           std::pair("bos_token", special.bos), std::pair("eos_token", special.eos)})
      if (id >= 0)
        settings[key] = tokenizer->piece(id);
  }

private:
  static bool isText(const std::string &contents) {
    return contents.find_first_of(std::string("\0\1\2\3\4\5\6\7\b", 9)) == std::string::npos;
  }
  static bool isJson(const std::string &contents) {
    const size_t begin = contents.find_first_not_of(" \t\r\n");
    return isText(contents) && begin != std::string::npos && contents[begin] == '{';
  }

  const std::string &contents;
  std::unique_ptr<Tokenizer> tokenizer;
  bool mapped, json;
};

// M2M100's languages are tokens of this form, which its vocab.json leaves out.
bool isLanguage(const std::string &token) {
  return token.size() > 4 && token.starts_with("__") && token.ends_with("__");
}

std::string nameOf(const std::string &language) {
  return isLanguage(language) ? language.substr(2, language.size() - 4) : language;
}

std::string classOf(const std::string &modelType, bool languageFollows) {
  if (modelType.ends_with("t5"))
    return "T5Tokenizer";
  if (modelType == "bart")
    return "BartTokenizer";
  if (modelType == "m2m_100")
    return "NllbTokenizer";
  if (modelType == "mbart")
    return languageFollows ? "MBartTokenizer" : "MBart50Tokenizer";
  return "PreTrainedTokenizerFast";
}

} // namespace

std::map<std::string, std::string> tokenizerFiles(const FolderVocabularies &vocabularies,
                                                  const std::string &modelType) {
  std::map<std::string, std::string> files;
  if (vocabularies.source.empty())
    return files;
  const Side source(vocabularies.source),
      target(vocabularies.target.empty() ? vocabularies.source : vocabularies.target);
  const bool pieces = source.isSentencePiece() && target.isSentencePiece(), isT5 = modelType.ends_with("t5");
  Json settings;
  target.addTokens(settings);
  if (source.isTokenizerJson() && target.isTokenizerJson()) {
    files["tokenizer.json"] = source.whole();
    settings["tokenizer_class"] = classOf(modelType, source.languageFollows());
  } else if (pieces && isT5 && source.isOfT5()) {
    files["spiece.model"] = source.model();
    settings["tokenizer_class"] = "T5Tokenizer";
  } else if (pieces && (isT5 || modelType == "marian")) {
    files["source.spm"] = source.model();
    files["target.spm"] = target.model();
    files["vocab.json"] = source.map();
    const bool separate = target.map() != files["vocab.json"];
    if (separate)
      files["target_vocab.json"] = target.map();
    settings.update({{"tokenizer_class", "MarianTokenizer"}, {"separate_vocabs", separate}});
  } else if (pieces && modelType == "m2m_100" && source.isMapped()) {
    files["sentencepiece.bpe.model"] = source.model();
    files["vocab.json"] = source.map([](const std::string &token) { return !isLanguage(token); });
    settings["tokenizer_class"] = "M2M100Tokenizer";
    settings["additional_special_tokens"] = source.list(isLanguage); // CTranslate2 gives ids to what is listed
  } else if (pieces && modelType == "mbart" && source.isMapped()) {
    files["sentencepiece.bpe.model"] = source.model();
    settings["tokenizer_class"] = classOf(modelType, source.languageFollows());
  } else {
    return {};
  }
  if (settings["tokenizer_class"] == "T5Tokenizer")
    settings["extra_ids"] = source.count("<extra_id_"); // transformers adds a hundred if nothing is said
  if (modelType == "mbart" || modelType == "m2m_100") {
    if (const std::string language = source.language(); !language.empty())
      settings["src_lang"] = nameOf(language);
    if (const std::string language = target.language(); !language.empty() && !vocabularies.target.empty())
      settings["tgt_lang"] = nameOf(language);
    if (source.languageFollows() && settings["tokenizer_class"] == "NllbTokenizer")
      settings["legacy_behaviour"] = true;
  }
  files["tokenizer_config.json"] = settings.dump(2) + "\n";
  return files;
}

std::map<std::string, std::string> splitterFiles(const FolderVocabularies &vocabularies) {
  if (vocabularies.source.empty())
    return {};
  const Side source(vocabularies.source),
      target(vocabularies.target.empty() ? vocabularies.source : vocabularies.target);
  if (source.isTokenizerJson() && source.whole() == target.whole())
    return {{"tokenizer.json", source.whole()}};
  if (!source.isSentencePiece() || !target.isSentencePiece())
    return {};
  if (source.model() == target.model())
    return {{"sentencepiece.model", source.model()}};
  return {{"source.spm", source.model()}, {"target.spm", target.model()}};
}

} // namespace xfc
