// Reads a tokenizer.json, the format of the library tokenizers: normalizers, pre-tokenizers, a model, the frame around
// the tokens, and decoders.
#include "support/Error.h"
#include "tokenizers/AddedTokens.h"
#include "tokenizers/Kinds.h"
#include "tokenizers/SubwordModel.h"
#include "tokenizers/TextSteps.h"
#include "tokenizers/Utf8.h"
#include <algorithm>
#include <map>
#include <optional>

namespace xfc {
namespace {

class JsonTokenizer : public Tokenizer {
public:
  explicit JsonTokenizer(const JsonFields &file) {
    if (!file.has("model"))
      file.refuse("not a tokenizer.json, which has a \"model\"");
    readModel(file.at("model"));
    if (file.has("normalizer"))
      normalizers = readNormalizers(file.at("normalizer"));
    if (file.has("pre_tokenizer"))
      preTokenizers = readPreTokenizers(file.at("pre_tokenizer"));
    if (file.has("decoder"))
      decoders.emplace(readDecoders(file.at("decoder")));
    if (file.has("added_tokens"))
      file.each("added_tokens", [&](const JsonFields &token) { readAdded(token); });
    added.finish(normalize());
    if (file.has("post_processor"))
      readFrame(file.at("post_processor"));
    file.ignore({"version", "truncation", "padding"}); // transformers sets the last two anew for each call
    unknown = file.unknown();
  }

  int64_t size() const override { return std::max(model->tokens().size(), added.size()); }

  bool canSample() const override { return true; }

  std::vector<int32_t> segment(std::string_view line, const SegmentationSampling *sampling) const override {
    return segment(line, sampling, nullptr);
  }

  std::vector<std::string> unknowns(std::string_view line) const override {
    std::vector<std::string> texts;
    segment(line, nullptr, &texts);
    return texts;
  }

  std::string join(std::span<const int32_t> ids, std::span<const std::string> unknowns) const override {
    const int32_t unk = unknowns.empty() ? -1 : special().unk;
    std::vector<std::string> tokens;
    for (const int32_t id : ids) {
      const AddedToken *token = added.find(id);
      const bool given = id == unk && !unknowns.empty();
      if (given)
        tokens.push_back(unknowns.front());
      else if (id >= 0 && id < size() && !(token && token->special))
        tokens.push_back(token ? token->decoded : piece(id));
      unknowns = unknowns.subspan(given);
    }
    if (decoders)
      for (const Decoder &step : *decoders)
        step(tokens);
    std::string text;
    for (const std::string &token : tokens)
      text += (decoders || &token == &tokens.front() ? "" : " ") + token;
    return text;
  }

  std::string piece(int32_t id) const override {
    if (const AddedToken *token = added.find(id))
      return token->text;
    return std::string(id < model->tokens().size() ? model->tokens().text(id) : "");
  }

  int32_t idOf(std::string_view piece) const override {
    if (const AddedToken *token = added.find(piece))
      return token->id;
    const int32_t id = model->tokens().find(piece);
    return id >= 0 ? id : model->unknown();
  }

  // The file does not say which tokens these are, but they have the same names everywhere.
  SpecialTokens special() const override {
    auto named = [&](const char *name) {
      const AddedToken *token = added.find(std::string_view(name));
      return token && token->special ? token->id : -1;
    };
    return {named("<pad>"), model->unknown() >= 0 ? model->unknown() : named("<unk>"), named("<s>"), named("</s>")};
  }

  const Frame *frame() const override { return around ? &*around : nullptr; }

  std::vector<std::string> ignored() const override { return unknown; }

private:
  std::vector<int32_t> segment(std::string_view line, const SegmentationSampling *sampling,
                               std::vector<std::string> *unknowns) const {
    const int32_t unk = unknowns ? special().unk : -1;
    std::vector<int32_t> ids;
    for (AddedTokens::Section &section : added.split(validUtf8(line), normalize())) {
      if (section.id >= 0) {
        ids.push_back(section.id);
        if (unknowns && section.id == unk)
          unknowns->push_back(section.text);
        continue;
      }
      std::vector<Word> words;
      words.push_back({std::move(section.text), section.first});
      for (const PreTokenizer &step : preTokenizers)
        step(words);
      for (const Word &word : words)
        model->encode(word.text, sampling, ids, unknowns);
    }
    return ids;
  }

  void readModel(const JsonFields &description) {
    const std::string type = description.has("type")             ? description.string("type")
                             : description.has("merges")         ? "BPE"
                             : description.at("vocab").isArray() ? "Unigram"
                                                                 : "";
    if (type == "BPE")
      model = readBytePairModel(description);
    else if (type == "Unigram")
      model = readUnigramModel(description);
    else
      description.at("type").refuse("unknown model; expected BPE or Unigram");
  }

  void readAdded(const JsonFields &token) {
    AddedToken read{0, token.string("content")};
    const int32_t known = model->tokens().find(read.text);
    read.id = known >= 0 ? known : static_cast<int32_t>(token.at("id").integer(0, mostIds));
    read.singleWord = token.boolean("single_word", false);
    read.stripLeft = token.boolean("lstrip", false);
    read.stripRight = token.boolean("rstrip", false);
    read.special = token.boolean("special", false);
    read.normalized = token.boolean("normalized", !read.special);
    token.ignore({"id"}); // the model's own, if it has the token
    added.add(std::move(read));
  }

  // Reads the tokens put before and after the line; each processor wraps the preceding ones.
  void readFrame(const JsonFields &processor) {
    const std::string type = processor.string("type");
    if (type == "Sequence") {
      processor.each("processors", [&](const JsonFields &part) { readFrame(part); });
    } else if (type == "TemplateProcessing") {
      Frame frame;
      bool behind = false;
      std::map<std::string, JsonFields> tokens;
      if (processor.has("special_tokens"))
        processor.at("special_tokens").members([&](const std::string &name, const JsonFields &token) {
          tokens.emplace(name, token);
          token.ignore({"id", "ids", "tokens"});
        });
      processor.each("single", [&](const JsonFields &part) {
        if (part.has("Sequence")) {
          behind = true;
          return;
        }
        const JsonFields token = part.at("SpecialToken");
        token.ignore({"type_id"});
        const auto found = tokens.find(token.string("id"));
        if (found == tokens.end())
          token.at("id").refuse("not among the special_tokens");
        std::vector<int32_t> &side = behind ? frame.suffix : frame.prefix;
        found->second.each("ids", [&](const JsonFields &id) { side.push_back(idIn(id)); });
      });
      processor.ignore({"pair"}); // of two texts
      if (!behind)
        processor.at("single").refuse("expected the line itself among its parts");
      surround(frame);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      surround({{idIn(processor.at("cls").element(1))}, {idIn(processor.at("sep").element(1))}});
      processor.ignore({"trim_offsets", "add_prefix_space"});
    } else if (type == "ByteLevel") { // which changes offsets only
      processor.ignore({"trim_offsets", "add_prefix_space", "use_regex"});
    } else {
      processor.at("type").refuse("unknown post-processor; expected one of Sequence, TemplateProcessing, "
                                  "RobertaProcessing, BertProcessing, ByteLevel");
    }
  }
  int32_t idIn(const JsonFields &id) const { return static_cast<int32_t>(id.integer(0, size() - 1)); }
  void surround(Frame outer) {
    if (!around)
      around.emplace();
    around->prefix.insert(around->prefix.begin(), outer.prefix.begin(), outer.prefix.end());
    around->suffix.insert(around->suffix.end(), outer.suffix.begin(), outer.suffix.end());
  }

  AddedTokens::Normalize normalize() const {
    return [this](std::string text) {
      const size_t most = 64 * text.size() + 65536; // normalization expands no language more than twelvefold
      for (const Normalizer &step : normalizers)
        if (text = step(std::move(text)); text.size() > most)
          throw Error("normalizer: makes a line longer than " + std::to_string(most) + " bytes");
      return text;
    };
  }

  static constexpr int64_t mostIds = (1 << 22) - 1; // the same limit as for the model's tokens
  std::unique_ptr<SubwordModel> model;
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> preTokenizers;
  std::optional<std::vector<Decoder>> decoders;
  AddedTokens added;
  std::optional<Frame> around;
  std::vector<std::string> unknown;
};

} // namespace

std::unique_ptr<Tokenizer> jsonTokenizer(std::string_view contents) {
  return std::make_unique<JsonTokenizer>(JsonFields::parsed(contents));
}

} // namespace xfc
