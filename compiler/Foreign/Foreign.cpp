// Imports a model of another program into a folder of ours.
#include "Foreign.h"
#include "Import/Description.h"
#include "Import/Json.h"
#include "JsonText.h"
#include "Kinds.h"
#include "NewFolder.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/Quoted.h"
#include "tensors/Numbers.h"
#include "tokenizers/MappedSentencePiece.h"
#include "vocabularies/Vocabulary.h"
#include "vocabularies/VocabularyIdentity.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

namespace fs = std::filesystem;

namespace xfc {
namespace {

// Makes a valid name of a model from the name of the folder or file.
std::string nameOf(const std::string &from) {
  fs::path path = fs::absolute(from).lexically_normal();
  if (fs::is_regular_file(path))
    path.replace_extension();
  std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  for (size_t i = 0; i < name.size(); ++i) {
    const unsigned char c = name[i];
    if (c >= 128 || !(std::isalnum(c) || c == '_' || c == '-' || (c == '.' && i > 0 && name[i - 1] != '.')))
      name[i] = '-';
  }
  name.resize(std::min<size_t>(name.size(), 128));
  while (!name.empty() && name.back() == '.')
    name.pop_back();
  return name.empty() ? "imported" : name;
}

// Fails if a weight is no finite number, or none of F32, in which models are computed.
void checkNumbers(const TensorViews &tensors, const ForeignFiles &files) {
  const TensorView *bad = notFinite(nullptr, tensors);
  std::string what = " holds NaN or infinity";
  constexpr double most = std::numeric_limits<float>::max();
  for (const TensorView &tensor : tensors)
    if (!bad && tensor.type == "F64")
      eachNumber(tensor, 0, elementsOf(tensor.shape), [&](int64_t, double number) {
        if (!bad && std::abs(number) > most) {
          bad = &tensor;
          what = " holds numbers beyond F32";
        }
      });
  if (!bad)
    return;
  const auto name = std::find_if(files.model.tensors.begin(), files.model.tensors.end(),
                                 [&](const TensorName &each) { return each.ours == bad->name; });
  const TensorView *theirs = files.weights.find(name->theirs);
  throw Error(files.weights.fileOf(*theirs) + ": " + inQuotes(theirs->name) + what +
              "; the weights are damaged, or their training diverged; expected finite numbers");
}

// The files' tensor for each parameter, in the order of the model. Fails if a tensor is missing or not used.
TensorViews tensorsOf(const Description &description, const ForeignFiles &files) {
  const ForeignModel &model = files.model;
  const Weights &weights = files.weights;
  std::map<std::string, const TensorName *> byName;
  for (const TensorName &name : model.tensors)
    byName[name.ours] = &name;
  std::set<const TensorView *> used;
  TensorViews tensors;
  for (const ParameterDescription &parameter : description.parameters) {
    const TensorName &name = *byName.at(parameter.name);
    std::vector<int64_t> expected = parameter.shape;
    if (name.row)
      expected.insert(expected.begin(), 1);
    const TensorView *tensor = weights.find(name.theirs);
    if (!tensor)
      throw Error(weights.name() + ": " + inQuotes(name.theirs) + " " + textOf(expected) +
                  " is missing but required by " + files.describedBy + weights.namesOf("; "));
    if (tensor->shape != expected)
      throw Error(weights.fileOf(*tensor) + ": " + inQuotes(tensor->name) + " has shape " + textOf(tensor->shape) +
                  ", but " + files.describedBy + " requires " + textOf(expected));
    const std::set<std::string> types = {"F32", "F64", "F16", "BF16"};
    if (!types.contains(tensor->type))
      throw Error(weights.fileOf(*tensor) + ": " + inQuotes(tensor->name) + " has type " + tensor->type +
                  "; expected F32, F64, F16 or BF16");
    used.insert(tensor);
    tensors.push_back({parameter.name, tensor->type, parameter.shape, tensor->bytes});
  }
  for (const TensorView *tensor : weights.all()) {
    const auto isSame = [&](const TensorView *other) { return Weights::same(*tensor, *other); };
    const auto endsIt = [&](const std::string &end) { return tensor->name.ends_with(end); };
    const bool embedding = tensor->name.ends_with("shared.weight") || tensor->name.ends_with("embed_tokens.weight") ||
                           tensor->name == "lm_head.weight";
    if (!used.contains(tensor) && !std::any_of(model.redundant.begin(), model.redundant.end(), endsIt) &&
        !(embedding && std::any_of(used.begin(), used.end(), isSame)))
      throw Error(weights.fileOf(*tensor) + ": " + inQuotes(tensor->name) + " " + textOf(tensor->shape) +
                  " is not part of the model that " + files.describedBy +
                  " describes; expected only the weights of that model");
  }
  return tensors;
}

// The tokens with which every translation begins because of the requested target language.
std::vector<int32_t> firstTokens(const ForeignOptions &options, const FolderVocabularies &vocabularies) {
  if (options.sourceLanguage.empty() && options.targetLanguage.empty())
    return {};
  if (vocabularies.source.empty())
    throw Error(options.from + ": has no tokenizer, so there are no languages to choose from; leave out "
                               "--source-language and --target-language");
  if (options.targetLanguage.empty())
    return {};
  const std::string &target = vocabularies.target.empty() ? vocabularies.source : vocabularies.target;
  return Vocabulary::fromBytes(target, options.from, 0).targetPrefix(Format::Text);
}

// The language that the folder's tokenizer_config.json gives for a side; empty if there is none.
std::string languageOf(const std::string &from, const char *key) {
  const std::string file = from + "/tokenizer_config.json";
  if (!exists(file))
    return "";
  const nlohmann::json json = parseJson(readFile(file), file);
  return json.is_object() && json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
}

// Makes the vocabularies normalize punctuation, if that was requested.
void setPunctuation(const ForeignOptions &options, FolderVocabularies &vocabularies, std::vector<std::string> &notes) {
  const std::string &given = options.punctuation;
  if (given.empty())
    return;
  // A code in small letters, with or without a country or a script, as in en_XX and eng_Latn.
  const std::string code = given.substr(0, given.find_first_of("_-"));
  const bool isCode = given.size() <= 16 && !code.empty() && std::ranges::all_of(code, llvm::isLower) &&
                      std::all_of(given.begin() + static_cast<std::ptrdiff_t>(code.size()), given.end(),
                                  [](char c) { return llvm::isAlpha(c) || c == '_' || c == '-'; });
  if (!isCode)
    throw Error("--normalize-punctuation: " + inQuotes(given) + " is no language; expected a code such as en, or auto");
  if (vocabularies.source.empty())
    throw Error(options.from + ": has no tokenizer, so there is no punctuation to normalize; leave out "
                               "--normalize-punctuation");
  const std::string source = given == "auto" ? languageOf(options.from, "source_lang") : given,
                    target = languageOf(options.from, "target_lang");
  if (source.empty())
    throw Error(options.from + ": no source_lang in a tokenizer_config.json; name the language, as "
                               "--normalize-punctuation en");
  const std::string both = vocabularies.source;
  try {
    vocabularies.source = withPunctuation(vocabularies.source, source);
    if (vocabularies.target.empty() && target != source)
      vocabularies.target = both;
    if (!vocabularies.target.empty() && !target.empty())
      vocabularies.target = withPunctuation(vocabularies.target, target);
  } catch (const Error &error) {
    throw Error(options.from + ": " + error.what() + "; leave out --normalize-punctuation");
  }
  notes.push_back("the punctuation of source lines is normalized for " + source +
                  (target.empty() ? ", that of target lines is not" : ", that of target lines for " + target));
}

} // namespace

ForeignImport importForeign(const ForeignOptions &options) {
  ForeignFiles files = kindOf(options.from).read(options);
  ForeignModel &model = files.model;
  setPunctuation(options, files.vocabularies, model.notes);

  ForeignImport result;
  result.model = nameOf(options.from);
  nlohmann::ordered_json json = {{"format", "xfc-model/1"}, {"name", result.model}};
  json.update(model.description);
  json["generation"] = files.generation;
  const FolderVocabularies &vocabularies = files.vocabularies;
  if (const std::vector<int32_t> first = firstTokens(options, vocabularies); !first.empty())
    json["generation"]["forced_first"] = first;
  const std::string text = jsonText(json);
  const Description description = parseDescription(text, files.describedBy + ", as model.json");
  const TensorViews tensors = tensorsOf(description, files);
  checkNumbers(tensors, files);

  NewFolder folder(options.to);
  const std::string hash = llvm::toHex(llvm::SHA256::hash(llvm::arrayRefFromStringRef(description.canonical)), true);
  Metadata identity = identityOf(description.name, hash, description.canonical);
  if (!vocabularies.source.empty()) {
    identity[sourceVocabularyKey] = vocabularyHash(vocabularies.source);
    identity[targetVocabularyKey] =
        vocabularies.target.empty() ? identity[sourceVocabularyKey] : vocabularyHash(vocabularies.target);
  }
  writeSafetensors(folder.file("model.safetensors"), tensors, identity);
  writeFile(folder.file("model.json"), text);
  if (!vocabularies.source.empty())
    writeFile(folder.file(folderVocabulary), vocabularies.source);
  if (!vocabularies.target.empty())
    writeFile(folder.file(folderTargetVocabulary), vocabularies.target);
  folder.commit();
  result.parameters = tensors.size();
  for (const TensorView &tensor : tensors)
    result.bytes += tensor.bytes.size();
  result.readsText = !vocabularies.source.empty();
  if (!result.readsText)
    model.notes.push_back(options.from +
                          ": has no tokenizer; the model takes ids (--format ids), or a vocabulary given by --vocab");
  result.notes = std::move(model.notes);
  result.asked = std::move(files.asked);
  return result;
}

} // namespace xfc
