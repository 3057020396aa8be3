// Reads a Hugging Face folder: config.json names the family, and safetensors hold the weights.
#include "Generation.h"
#include "Kinds.h"
#include "support/Files.h"
#include "support/Quoted.h"
#include <algorithm>
#include <filesystem>
#include <optional>

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

// Keys of any config.json that change nothing here: what transformers notes about files, types and tasks, how it loads
// and runs models, and settings of other kinds of models that it writes into every config.
const std::set<std::string> harmless = {"_name_or_path",
                                        "_num_labels",
                                        "_attn_implementation",
                                        "_attn_implementation_autoset",
                                        "_commit_hash",
                                        "architectures",
                                        "auto_map",
                                        "transformers_version",
                                        "dtype",
                                        "torch_dtype",
                                        "use_cache",
                                        "tf_legacy_loss",
                                        "torchscript",
                                        "use_bfloat16",
                                        "pruned_heads",
                                        "chunk_size_feed_forward",
                                        "add_cross_attention",
                                        "cross_attention_hidden_size",
                                        "tie_encoder_decoder",
                                        "finetuning_task",
                                        "id2label",
                                        "label2id",
                                        "num_labels",
                                        "problem_type",
                                        "task_specific_params",
                                        "tokenizer_class",
                                        "prefix",
                                        "sep_token_id",
                                        "output_past",
                                        "output_attentions",
                                        "output_hidden_states",
                                        "return_dict",
                                        "gradient_checkpointing",
                                        "attn_implementation"};

// A config.json without a generation_config.json beside it holds the settings of the search, too; with one, `generate`
// does not look at those.
void tellUnknown(const Config &config, const Family &family, const Config &generation,
                 std::vector<std::string> &notes) {
  std::set<std::string> known = harmless;
  known.insert(family.harmless.begin(), family.harmless.end());
  known.insert(harmlessInSearch().begin(), harmlessInSearch().end());
  if (&config != &generation) {
    generation.tellUnknown(known, neutralInSearch(), notes);
    known.insert(generation.asked().begin(), generation.asked().end());
    for (const auto &setting : neutralInSearch().items())
      known.insert(setting.key());
  }
  config.tellUnknown(known, neutralInSearch(), notes);
}

std::vector<std::string> askedOf(const Config &config) {
  std::vector<std::string> keys;
  for (const std::string &key : config.asked())
    keys.push_back(std::filesystem::path(config.file()).filename().string() + ": " + key);
  return keys;
}

} // namespace

std::string listedFamilies() { return listed(knownTypes()); }

bool isHuggingFace(const std::string &path) {
  const auto has = [&](const char *file) { return exists(path + "/" + file); };
  // CTranslate2's folders have a config.json too.
  return has("config.json") && (!has("model.bin") || has("model.safetensors") || has("model.safetensors.index.json"));
}

ForeignFiles readHuggingFace(const ForeignOptions &options) {
  Config config(options.from + "/config.json");
  config.setNull(Config::Null::Value);
  const Family &family = familyOf(config);
  ForeignFiles files{config.file(), Weights(options.from), {}, {}, {}};
  files.model = family.read(config, files.weights);
  files.vocabularies = vocabulariesOfFolder(options.from, config.at("model_type", "").string(), options.sourceLanguage,
                                            options.targetLanguage);
  files.model.notes.insert(files.model.notes.end(), files.vocabularies.notes.begin(), files.vocabularies.notes.end());
  const std::string searched = options.from + "/generation_config.json";
  const std::optional<Config> beside = exists(searched) ? std::optional<Config>(std::in_place, searched) : std::nullopt;
  config.setNull(Config::Null::NotGiven); // what follows are settings of the search, with defaults for null
  const Config &generation = beside ? *beside : config;
  takeTokens(generation, files.model.description);
  files.generation = generationOf(generation, files.model.description, files.model.notes);
  tellUnknown(config, family, generation, files.model.notes);
  files.asked = askedOf(config);
  if (beside)
    for (std::string &key : askedOf(*beside))
      files.asked.push_back(std::move(key));
  return files;
}

} // namespace xfc
