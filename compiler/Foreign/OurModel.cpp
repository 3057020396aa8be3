// Reads a model of ours from a folder, to be exported.
#include "OurModel.h"
#include "Import/Generation.h"
#include "Rebuilt.h"
#include "support/Error.h"
#include "support/Files.h"
#include "support/MappedFile.h"
#include "support/Quoted.h"
#include "tensors/Identity.h"
#include "tensors/Numbers.h"
#include "tokenizers/MappedSentencePiece.h"
#include "vocabularies/Vocabulary.h"
#include "vocabularies/VocabularyIdentity.h"
#include <algorithm>
#include <filesystem>

namespace fs = std::filesystem;

namespace xfc {
namespace {

std::string weightsOf(const std::string &folder) {
  for (const char *name : {"best.safetensors", "last.safetensors", "model.safetensors"})
    if (exists(folder + "/" + name))
      return folder + "/" + name;
  throw Error(folder + ": holds none of best.safetensors, last.safetensors and model.safetensors; expected the "
                       "--out folder of train, or a folder made by `xfc import`");
}

// The tensor of each parameter. Fails if one is missing, has another shape or is damaged.
std::map<std::string, TensorView> tensorsOf(const Description &description, const TensorViews &views,
                                            const Metadata &metadata, const std::string &file) {
  std::map<std::string, TensorView> byName, tensors;
  for (const TensorView &view : views)
    byName[view.name] = view;
  std::vector<const TensorView *> used;
  for (const ParameterDescription &parameter : description.parameters) {
    std::vector<std::string> names = {parameter.name};
    names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
    const auto name = std::find_if(names.begin(), names.end(), [&](const auto &each) { return byName.contains(each); });
    if (name == names.end())
      throw Error(file + ": " + inQuotes(parameter.name) + " is missing; expected the weights of this model");
    const TensorView &tensor = byName.at(*name);
    if (tensor.shape != parameter.shape)
      throw Error(file + ": " + inQuotes(*name) + " has shape " + textOf(tensor.shape) + ", but the model requires " +
                  textOf(parameter.shape));
    tensors[parameter.name] = tensor;
    used.push_back(&tensor);
  }
  verifyWeights(nullptr, used, metadata, file);
  return tensors;
}

// Fails if the weights are of another model than the one described, or of other vocabularies.
void checkIdentity(const OurModel &model, const std::string &folder, const Metadata &metadata) {
  const auto of = metadata.find("description");
  if (const std::string what = of == metadata.end() ? "" : differenceOfModels(of->second, model.description.canonical);
      !what.empty())
    throw Error(model.file + ": these are weights of another model than that of " + model.describedBy + ": " + what +
                "; expected the weights that were trained or imported with it");
  const FolderVocabularies &vocabularies = model.vocabularies;
  const std::string advice = "put that one back into the folder";
  checkVocabulary(metadata, sourceVocabularyKey, vocabularies.source, folder + "/" + folderVocabulary, advice);
  const bool both = vocabularies.target.empty();
  checkVocabulary(metadata, targetVocabularyKey, both ? vocabularies.source : vocabularies.target,
                  folder + "/" + (both ? folderVocabulary : folderTargetVocabulary), advice);
}

FolderVocabularies vocabulariesIn(const std::string &folder) {
  FolderVocabularies found;
  for (auto [name, contents] :
       {std::pair(folderVocabulary, &found.source), std::pair(folderTargetVocabulary, &found.target)})
    if (exists(folder + "/" + name))
      *contents = readFile(folder + "/" + name, mostLargeBytes);
  return found;
}

} // namespace

const TensorView *OurModel::tensor(const std::string &name) const {
  const ParameterDescription *parameter = description.parameter(name);
  return parameter ? &tensors.at(parameter->name) : nullptr;
}

FoundDescription descriptionIn(const std::string &folder) {
  if (const std::string json = folder + "/model.json"; exists(json))
    return {readFile(json), json};
  const std::string file = weightsOf(folder);
  Metadata metadata;
  parseSafetensors(MappedFile::readOnly(file).contents(), file, &metadata);
  const auto own = metadata.find("description");
  if (own == metadata.end() || own->second.empty())
    throw Error(file + ": does not say which model it belongs to; expected weights that train or `xfc import` wrote");
  return {own->second, file};
}

OurModel readOurModel(const std::string &folder) {
  if (!isFolder(folder))
    throw Error(folder + ": is not a folder; expected the --out folder of train, or a folder made by `xfc import`");
  const std::string file = weightsOf(folder);
  OurModel model{file, file, MappedFile::readOnly(file), {}, {}, {}, vocabulariesIn(folder)};
  Metadata metadata;
  const TensorViews views = parseSafetensors(model.contents.contents(), file, &metadata);
  const FoundDescription own = descriptionIn(folder);
  model.describedBy = own.file;
  model.description = parseDescription(own.text, own.file);
  const nlohmann::json canonical = parseJson(model.description.canonical, model.describedBy);
  if (canonical.contains("generation"))
    model.generation = readGeneration(JsonValue(canonical["generation"], model.describedBy, "generation"),
                                      model.description.targetVocab, model.description.tokens.pad,
                                      model.description.tokens.start, model.description.tokens.eos);
  model.tensors = tensorsOf(model.description, views, metadata, file);
  checkIdentity(model, folder, metadata);
  return model;
}

bool startsFromZero(const OurModel &model) {
  const Description &description = model.description;
  const int32_t start = description.tokens.start;
  if (start != description.tokens.pad || start == description.tokens.eos || start != description.targetVocab - 1)
    return false;
  const TensorView *table = model.tensor("decoder.embed.weight");
  const std::vector<float> row = floatsOf(rowsOf(*table, start, 1));
  const bool separate = description.parameter("encoder.embed.weight") != description.parameter("decoder.embed.weight");
  return (separate || description.sourceVocab == description.targetVocab) &&
         std::all_of(row.begin(), row.end(), [](float number) { return number == 0; });
}

std::string punctuationNote(const FolderVocabularies &vocabularies) {
  const std::string source = punctuationOf(vocabularies.source),
                    target = vocabularies.target.empty() ? source : punctuationOf(vocabularies.target);
  if (source.empty() && target.empty())
    return "";
  std::string text = "the punctuation of ";
  if (source.empty())
    text += "target lines is normalized for " + target + " here";
  else
    text += "source lines is normalized for " + source + " here" +
            (target.empty() ? "" : ", and that of target lines for " + target);
  return text + "; the exported folder cannot say so, so normalize it before other programs read the lines";
}

} // namespace xfc
