// Exports a model of ours into a Hugging Face folder.
#include "Describe.h"
#include "Export.h"
#include "Families.h"
#include "Generation.h"
#include "JsonText.h"
#include "NewFolder.h"
#include "OurModel.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include "vocabularies/TokenizerFiles.h"
#include <algorithm>
#include <map>
#include <optional>

namespace xfc {
namespace {

using Json = nlohmann::ordered_json;

//===-- the family ----------------------------------------------------------------------------------------------===//

// The model as one of a family: its config and the names of its tensors there.
struct Exported {
  Json config;
  std::vector<TensorName> tensors;
};

// The tensors that a family's reader looks up to decide which tensors exist and which are tied, under the family's
// names.
Weights lookedAt(const OurModel &model, const std::string &prefix) {
  Weights weights(model.file, nullptr);
  const auto add = [&](const std::string &theirs, const std::string &ours) {
    if (const TensorView *tensor = model.tensor(ours)) {
      TensorView view = *tensor;
      view.name = theirs;
      weights.add(std::move(view));
    }
  };
  const Description &description = model.description;
  const auto *encoder = description.parameter("encoder.embed.weight"),
             *decoder = description.parameter("decoder.embed.weight"), *output = description.parameter("output.weight");
  if (encoder == decoder)
    add(prefix + "shared.weight", "encoder.embed.weight");
  else {
    add(prefix + "encoder.embed_tokens.weight", "encoder.embed.weight");
    add(prefix + "decoder.embed_tokens.weight", "decoder.embed.weight");
  }
  if (output != decoder)
    add("lm_head.weight", "output.weight");
  add("final_logits_bias", "output.bias");
  return weights;
}

// Puts the sines of sinusoidal positions before the cosines. Returns whether they were interleaved.
bool putSinesFirst(Description &description) {
  bool changed = false;
  for (StackDescription *stack : {&description.encoder, description.decoder ? &*description.decoder : nullptr})
    for (StepDescription &step : stack ? stack->input : description.head)
      if (auto *positions = std::get_if<step::SinusoidalPositions>(&step.options); positions && !positions->halves)
        changed = positions->halves = true;
  return changed;
}

Exported asFamily(const OurModel &model, const Description &description, const Family &family,
                  const std::string &modelType) {
  Exported exported;
  exported.config["model_type"] = modelType;
  exported.config.update(family.describe(description));
  const Config config("config.json", nlohmann::json(exported.config));
  const std::string prefix = modelType.ends_with("t5") ? "" : "model.";
  ForeignModel read = family.read(config, lookedAt(model, prefix));
  Json json = {{"format", "xfc-model/1"}, {"name", "exported"}};
  json.update(read.description);
  const std::string difference =
      differenceFrom(description, parseDescription(jsonText(json), "config.json"), modelType);
  if (!difference.empty())
    throw Error(difference);
  exported.tensors = std::move(read.tensors);
  // The models of transformers, except Marian, have the table that the stacks would share even if nothing reads it.
  if (modelType != "marian" &&
      description.parameter("encoder.embed.weight") != description.parameter("decoder.embed.weight"))
    exported.tensors.push_back({"encoder.embed.weight", prefix + "shared.weight"});
  return exported;
}

//===-- the weights ---------------------------------------------------------------------------------------------===//

// The dimension of a parameter that stands for the features of the rows between steps, if there is one.
std::optional<size_t> featuresOf(const std::string &name) {
  const auto ends = [&](std::initializer_list<const char *> list) {
    return std::any_of(list.begin(), list.end(), [&](const char *end) { return name.ends_with(end); });
  };
  if (ends({"embed.weight", ".q.weight", ".k.weight", ".v.weight", "ffn.in.weight", "output.weight"}))
    return 1;
  if (ends({".o.weight", ".o.bias", "norm.weight", "norm.bias", "ffn.out.weight", "ffn.out.bias"}))
    return 0;
  return std::nullopt;
}

// The bytes of a tensor, permuted so that its even features along `dimension` come before its odd ones.
std::string withEvenFirst(const TensorView &tensor, size_t dimension) {
  const auto extent = static_cast<size_t>(tensor.shape[dimension]);
  size_t outer = 1;
  for (size_t i = 0; i < dimension; ++i)
    outer *= static_cast<size_t>(tensor.shape[i]);
  const size_t block = tensor.bytes.size() / outer / extent;
  std::string bytes;
  bytes.reserve(tensor.bytes.size());
  for (size_t i = 0; i < outer; ++i)
    for (size_t odd : {0, 1})
      for (size_t feature = odd; feature < extent; feature += 2)
        bytes.append(tensor.bytes.substr((i * extent + feature) * block, block));
  return bytes;
}

// The type of the tensors, such as "float32", or "" if they have several types.
std::string typeOf(const TensorViews &tensors) {
  static const std::map<std::string, std::string> names = {
      {"F64", "float64"}, {"F32", "float32"}, {"F16", "float16"}, {"BF16", "bfloat16"}};
  const bool one = std::all_of(tensors.begin(), tensors.end(),
                               [&](const TensorView &tensor) { return tensor.type == tensors.front().type; });
  return one ? names.at(tensors.front().type) : "";
}

std::string architectureOf(const std::string &modelType) {
  static const std::map<std::string, std::string> names = {{"marian", "MarianMTModel"},
                                                           {"bart", "BartForConditionalGeneration"},
                                                           {"mbart", "MBartForConditionalGeneration"},
                                                           {"m2m_100", "M2M100ForConditionalGeneration"},
                                                           {"t5", "T5ForConditionalGeneration"},
                                                           {"mt5", "MT5ForConditionalGeneration"},
                                                           {"umt5", "UMT5ForConditionalGeneration"}};
  return names.at(modelType);
}

} // namespace

ForeignExport exportHuggingFace(const ExportOptions &options) {
  const OurModel model = readOurModel(options.from);
  Description sinesFirst = model.description;
  const bool alternating = putSinesFirst(sinesFirst);

  ForeignExport result;
  result.weights = model.file;
  std::optional<Exported> exported;
  std::string misfits;
  for (const Family &family : families())
    for (const std::string &type : family.modelTypes) {
      if (exported)
        break;
      try {
        exported = asFamily(model, sinesFirst, family, type);
        result.modelType = type;
      } catch (const Error &misfit) {
        misfits += "\n  " + type + ": " + misfit.what();
      }
    }
  if (!exported)
    throw Error(model.describedBy + ": matches no Hugging Face family that xfc knows:" + misfits);

  std::vector<std::string> made; // bytes of tensors whose features are permuted
  made.reserve(exported->tensors.size());
  TensorViews tensors;
  for (const TensorName &name : exported->tensors) {
    if (std::any_of(tensors.begin(), tensors.end(), [&](const auto &other) { return other.name == name.theirs; }))
      continue; // tied
    TensorView view = *model.tensor(name.ours);
    if (const auto features = featuresOf(name.ours); alternating && features)
      view.bytes = made.emplace_back(withEvenFirst(view, *features));
    view.name = name.theirs;
    if (name.row)
      view.shape.insert(view.shape.begin(), 1);
    result.bytes += view.bytes.size();
    tensors.push_back(std::move(view));
  }
  result.tensors = tensors.size();
  exported->config["architectures"] = {architectureOf(result.modelType)};
  // transformers knows where these families have their norms, but CTranslate2's converter reads it here.
  if (const bool pre = result.modelType == "mbart"; pre || result.modelType == "bart")
    exported->config.update({{"normalize_before", pre}, {"normalize_embedding", true}, {"add_final_layer_norm", pre}});
  if (const std::string type = typeOf(tensors); !type.empty())
    exported->config["dtype"] = type;
  const Json generation = generationConfig(model.generation, model.description, result.notes);
  if (result.modelType == "marian" && !startsFromZero(model))
    result.notes.push_back(model.describedBy + ": CTranslate2's converter takes for granted that a Marian model begins "
                                               "with padding, its last token, whose embedding is zero; this one does "
                                               "not, so export it with --to ctranslate2 for that program");
  const FolderVocabularies &vocabularies = model.vocabularies;
  const std::map<std::string, std::string> tokenizer = tokenizerFiles(vocabularies, result.modelType);
  if (tokenizer.empty())
    result.notes.push_back(
        options.from +
        (vocabularies.source.empty() ? ": has no vocabulary" : ": the vocabulary is not of a kind that ") +
        (vocabularies.source.empty() ? "" : result.modelType + " has") + "; the exported model takes ids");
  else if (const std::string note = punctuationNote(vocabularies); !note.empty())
    result.notes.push_back(note);

  NewFolder folder(options.to);
  writeSafetensors(folder.file("model.safetensors"), tensors, {{"format", "pt"}});
  writeFile(folder.file("config.json"), jsonText(exported->config));
  writeFile(folder.file("generation_config.json"), jsonText(generation));
  for (const auto &[name, contents] : tokenizer)
    writeFile(folder.file(name), contents);
  folder.commit();
  result.files = folder.files();
  return result;
}

} // namespace xfc
