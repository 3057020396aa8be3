// Reads a Hugging Face folder: config.json names the family, and safetensors hold the weights.
#include "Generation.h"
#include "Kinds.h"
#include "support/Files.h"
#include <algorithm>

namespace xfc {
namespace {

std::vector<std::string> knownTypes() {
  std::vector<std::string> known;
  for (const Family &family : families())
    known.insert(known.end(), family.modelTypes.begin(), family.modelTypes.end());
  return known;
}

const Family &familyOf(const Config &config) {
  const std::vector<std::string> known = knownTypes();
  const std::string type = config.at("model_type", "one of " + listed(known)).oneOf(known, "family");
  return *std::find_if(families().begin(), families().end(), [&](const Family &family) {
    return std::find(family.modelTypes.begin(), family.modelTypes.end(), type) != family.modelTypes.end();
  });
}

// `generate` takes the first and the last token of a translation from generation_config.json, if it has them.
void takeTokens(const Config &generation, nlohmann::ordered_json &description) {
  nlohmann::ordered_json &tokens = description["tokens"];
  const int64_t vocabulary = description["params"]["target_vocab"], start = tokens["start"];
  tokens["start"] = generation.token("decoder_start_token_id", start, vocabulary);
  tokens["eos"] = generation.token("eos_token_id", tokens["eos"], vocabulary);
  if (tokens["bos"] == start) // a family without a bos of its own
    tokens["bos"] = tokens["start"];
}

} // namespace

std::string listedFamilies() { return listed(knownTypes()); }

bool isHuggingFace(const std::string &path) {
  const auto has = [&](const char *file) { return exists(path + "/" + file); };
  // CTranslate2's folders have a config.json too.
  return has("config.json") && (!has("model.bin") || has("model.safetensors") || has("model.safetensors.index.json"));
}

ForeignFiles readHuggingFace(const ForeignOptions &options) {
  const Config config(options.from + "/config.json");
  const Family &family = familyOf(config);
  ForeignFiles files{config.file(), Weights(options.from), {}, {}, {}};
  files.model = family.read(config, files.weights);
  files.vocabularies = vocabulariesOfFolder(options.from, config.at("model_type", "").string(), options.sourceLanguage,
                                            options.targetLanguage);
  files.model.notes.insert(files.model.notes.end(), files.vocabularies.notes.begin(), files.vocabularies.notes.end());
  const std::string searched = options.from + "/generation_config.json";
  const Config generation(exists(searched) ? searched : config.file());
  takeTokens(generation, files.model.description);
  files.generation = generationOf(generation, files.model.description, files.model.notes);
  return files;
}

} // namespace xfc
