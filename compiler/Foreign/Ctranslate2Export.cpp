// Exports a model of ours into a CTranslate2 folder.
#include "Ctranslate2Form.h"
#include "Ctranslate2Model.h"
#include "Describe.h"
#include "Export.h"
#include "JsonText.h"
#include "NewFolder.h"
#include "OurModel.h"
#include "Rebuilt.h"
#include "plan/GenerationSettings.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include "support/Quoted.h"
#include "tensors/Numbers.h"
#include "tokenizers/MappedSentencePiece.h"
#include "tokenizers/Tokenizer.h"
#include "vocabularies/TokenizerFiles.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <set>

namespace xfc {
namespace {

using Json = nlohmann::ordered_json;
using namespace ctranslate2;

//===-- the weights ---------------------------------------------------------------------------------------------===//

// `where` is for messages: the file of the weights and the name of the variable.
template <typename Type>
std::string roundedTo(const std::vector<float> &numbers, const std::string &where, const std::string &quantization) {
  std::vector<typename Type::Bits> bits(numbers.size());
  for (size_t i = 0; i < bits.size(); ++i) {
    bits[i] = Type::rounded(numbers[i]);
    if ((bits[i] & Type::exponent) == Type::exponent) {
      char number[32];
      std::snprintf(number, sizeof number, "%g", static_cast<double>(numbers[i]));
      throw Error(where + " holds " + number + ", which is too large for --quantization " + quantization +
                  "; choose float32");
    }
  }
  return bytesOf(bits);
}

// The factors of the rows, by which the largest number of each becomes 127.
std::vector<float> scalesOf(const std::vector<float> &numbers, int64_t columns) {
  std::vector<float> scales;
  for (size_t row = 0; row < numbers.size(); row += static_cast<size_t>(columns)) {
    float most = 0;
    for (int64_t i = 0; i < columns; ++i)
      most = std::max(most, std::abs(numbers[row + static_cast<size_t>(i)]));
    // A scale must be a finite number, even for rows of tiny numbers.
    scales.push_back(most == 0 ? 1 : 127 / std::max(most, 127 / std::numeric_limits<float>::max()));
  }
  return scales;
}

// The variables of a model.
class Writer {
public:
  Writer(const OurModel &model, Form &form, bool zeroStart, std::string quantization)
      : model(model), form(form), zeroStart(zeroStart), quantization(std::move(quantization)) {}

  void addAll() {
    for (const bool decoder : {false, true})
      addStack(decoder);
    for (const Variable &variable : variablesOf(form))
      add(variable);
    const int64_t vocab = form.stacks[1].vocab;
    add({std::string(outputName) + "/weight", {{"output.weight", vocab}}, form.dim});
    if (form.outputBias)
      add({std::string(outputName) + "/bias", {{"output.bias", vocab}}});
    if (form.outputScale != 1)
      addScalar(outputScaleName, "F32", form.outputScale);
    addScalar(zeroStartName, "I8", zeroStart);
  }

  void write(const std::string &file) {
    std::sort(variables.begin(), variables.end(), [](const auto &a, const auto &b) { return a.name < b.name; });
    writeCtranslate2(file, specification, revision, variables, aliases);
  }

  size_t count() const { return variables.size() + aliases.size(); }

private:
  void addScalar(const std::string &name, const std::string &type, double value) {
    const auto as = [&](auto number) { return std::string(reinterpret_cast<const char *>(&number), sizeof number); };
    std::string bytes = type == "I8"    ? as(static_cast<int8_t>(value))
                        : type == "I16" ? as(static_cast<int16_t>(value))
                        : type == "I32" ? as(static_cast<int32_t>(value))
                                        : as(static_cast<float>(value));
    variables.push_back({name, type, {}, [bytes = std::move(bytes)] { return bytes; }});
  }

  void addStack(bool decoder) {
    Stack &stack = form.stacks[decoder];
    const std::string name = std::string(stackNames[decoder]) + "/";
    eachOption(stack, [&](const std::string &own, const char *type, auto &member, double) {
      addScalar(name + own, type, static_cast<double>(member));
    });
    const double root = std::sqrt(static_cast<double>(form.dim));
    if (const bool isRoot = sameNumber(stack.embeddingScale, root); isRoot || stack.embeddingScale == 1)
      addScalar(embeddingScaleName(decoder), "I8", isRoot);
    else
      addScalar(embeddingScaleName(decoder), "F32", stack.embeddingScale);
    for (int64_t layer = 0; layer < stack.layers; ++layer)
      for (Attention *attention : {&stack.self, decoder ? &stack.cross : nullptr})
        if (attention)
          addOptions(*attention, stack, attentionScope(decoder, layer, attention->cross) + "/");
    add({embeddingName(decoder), {{std::string(stackNames[decoder]) + ".embed.weight", stack.vocab}}, form.dim});
    if (!stack.positions.is_null())
      addPositions(decoder);
  }

  void addOptions(Attention &attention, const Stack &stack, const std::string &scope) {
    eachOption(attention, form.dim, stack.heads,
               [&](const std::string &own, const char *type, auto &member, double otherwise) {
                 if (!sameNumber(static_cast<double>(member), otherwise))
                   addScalar(scope + own, type, static_cast<double>(member));
               });
    if (attention.buckets > 0)
      addScalar(scope + maxDistanceOption, "I32", static_cast<double>(attention.maxDistance));
  }

  // Adds the table of positions. CTranslate2 could compute sinusoids, but not these.
  void addPositions(bool decoder) {
    const Description &description = model.description;
    const StackDescription &stack = decoder ? *description.decoder : description.encoder;
    for (const StepDescription &step : stack.input) {
      if (const auto *learned = std::get_if<step::LearnedPositions>(&step.options))
        add({positionsName(decoder),
             {{std::string(stackNames[decoder]) + ".pos.weight", learned->maxLength, learned->offset}},
             form.dim});
      if (const auto *positions = std::get_if<step::SinusoidalPositions>(&step.options))
        addNumbers(positionsName(decoder), {positions->maxLength, form.dim}, form.stacks[decoder].positions.dump(),
                   [at = *positions, dim = form.dim] { return sinusoids(at, at.maxLength, dim); });
    }
  }

  // Adds a variable that holds parameters, or an alias if there is one with the same.
  void add(const Variable &variable) {
    std::string key;
    for (const Part &part : variable.parts) {
      const ParameterDescription *parameter = model.description.parameter(part.ours);
      key +=
          (parameter ? parameter->name : "") + " " + std::to_string(part.first) + " " + std::to_string(part.rows) + " ";
    }
    addNumbers(variable.name, variable.shape(), key, [this, variable] {
      std::vector<float> numbers;
      for (const Part &part : variable.parts) {
        const TensorView *tensor = model.tensor(part.ours);
        const std::vector<float> rows = tensor ? floatsOf(rowsOf(*tensor, part.first, part.rows))
                                               : std::vector<float>(static_cast<size_t>(part.rows));
        numbers.insert(numbers.end(), rows.begin(), rows.end());
      }
      return numbers;
    });
  }

  // Adds a variable of numbers in the type of the quantization, or an alias if there is one with this key.
  void addNumbers(const std::string &name, const std::vector<int64_t> &shape, const std::string &key,
                  const std::function<std::vector<float>()> &numbers) {
    if (const auto [first, isNew] = byKey.emplace(key, name); !isNew) {
      aliases.emplace_back(name, first->second);
      return;
    }
    const std::string where = model.file + ": " + inQuotes(name);
    // CTranslate2 computes in integers with matrices only.
    if (quantization == "int8" && name.ends_with("/weight")) {
      const int64_t columns = shape.back();
      variables.push_back({name, "I8", shape, [numbers, columns] {
                             const std::vector<float> values = numbers(), scales = scalesOf(values, columns);
                             std::string bytes(values.size(), '\0');
                             for (size_t i = 0; i < values.size(); ++i)
                               bytes[i] = static_cast<char>(static_cast<int8_t>(
                                   std::nearbyint(values[i] * scales[i / static_cast<size_t>(columns)])));
                             return bytes;
                           }});
      variables.push_back({name + "_scale", "F32", {shape.front()}, [numbers, columns] {
                             return bytesOf(scalesOf(numbers(), columns));
                           }});
    } else if (quantization == "float16") {
      variables.push_back({name, "F16", shape,
                           [numbers, where, this] { return roundedTo<number::F16>(numbers(), where, quantization); }});
    } else if (quantization == "bfloat16") {
      variables.push_back({name, "BF16", shape,
                           [numbers, where, this] { return roundedTo<number::BF16>(numbers(), where, quantization); }});
    } else {
      variables.push_back({name, "F32", shape, [numbers] { return bytesOf(numbers()); }});
    }
  }

  const OurModel &model;
  Form &form;
  const bool zeroStart;
  const std::string quantization;
  std::vector<Ctranslate2Variable> variables;
  std::vector<std::pair<std::string, std::string>> aliases;
  std::map<std::string, std::string> byKey; // the first variable with these contents
};

//===-- the steps -----------------------------------------------------------------------------------------------===//

// A model that computes the same, in the only words that CTranslate2 has for it: masks that make no difference there
// are those that it has.
Description withItsMasks(const OurModel &model) {
  Description description = model.description;
  description.tokens.sourceEos = true; // config.json can say either
  const auto change = [&](const auto &self, std::vector<StepDescription> &steps, bool decoder) -> void {
    for (StepDescription &step : steps) {
      if (auto *residual = std::get_if<step::Residual>(&step.options))
        self(self, residual->body, decoder);
      auto *attention = std::get_if<step::Attention>(&step.options);
      if (!attention)
        continue;
      // Lines contain no padding, and neither do translations, but for the token that they may begin with.
      if (!decoder || attention->encoderMemory)
        attention->padding = true;
      else if (description.tokens.start != description.tokens.pad)
        attention->padding = false;
    }
  };
  change(change, description.encoder.layer, false);
  if (description.decoder)
    change(change, description.decoder->layer, true);
  return description;
}

// Fails if CTranslate2 does not compute these steps.
void check(const OurModel &model, const Form &form) {
  const Description ours = withItsMasks(model);
  Json json = {{"format", "xfc-model/1"}, {"name", "exported"}};
  json.update(ctranslate2::describe(form));
  json["tokens"] = {{"pad", ours.tokens.pad}, {"unk", ours.tokens.unk},     {"bos", ours.tokens.bos},
                    {"eos", ours.tokens.eos}, {"start", ours.tokens.start}, {"source_eos", true}};
  // Variables may share their contents in any way, except that one table of biases by distance serves a whole stack.
  Json share = Json::array();
  for (const ParameterDescription &parameter : ours.parameters)
    if (!parameter.aliases.empty()) {
      Json group = {parameter.name};
      for (const std::string &alias : parameter.aliases)
        group.push_back(alias);
      share.push_back(std::move(group));
    }
  if (!share.empty())
    json["share"] = share;
  Description theirs;
  try {
    theirs = parseDescription(json.dump(), model.describedBy);
  } catch (const Error &) {
    // The steps differ so much that the parameters of `share` are others.
    json.erase("share");
    theirs = parseDescription(json.dump(), model.describedBy);
  }
  if (const std::string difference = differenceFrom(ours, theirs, "CTranslate2"); !difference.empty())
    throw Error(difference);
  for (const bool decoder : {false, true})
    for (int64_t layer = 1; form.stacks[decoder].self.buckets > 0 && layer < form.stacks[decoder].layers; ++layer) {
      const auto name = [&](int64_t i) {
        return std::string(stackNames[decoder]) + ".layers." + std::to_string(i) + ".self_attn.distance_bias.weight";
      };
      if (ours.parameter(name(layer)) != ours.parameter(name(0)))
        throw Error("share: " + inQuotes(name(layer)) + " is a table of its own, where CTranslate2 has " +
                    inQuotes(name(0)) + " in all layers");
    }
}

//===-- the tokens ----------------------------------------------------------------------------------------------===//

// The names of the ids below `rows`. All differ, and ids without a piece get names that no text has. Without a
// tokenizer, the names are the ids, except that of padding, which is found by its name when the folder is imported.
std::vector<std::string> tokensOf(const Tokenizer *tokenizer, int64_t rows, const TokenIds &ids) {
  std::vector<std::string> tokens;
  std::set<std::string> known;
  for (int64_t id = 0; tokenizer && id < std::min(rows, tokenizer->size()); ++id)
    known.insert(tokenizer->piece(static_cast<int32_t>(id)));
  for (int64_t id = 0; id < rows; ++id) {
    std::string token = tokenizer && id < tokenizer->size() ? tokenizer->piece(static_cast<int32_t>(id)) : "";
    if (!tokenizer)
      token = id == ids.pad && id != ids.eos && id != ids.unk ? "<pad>" : std::to_string(id);
    else if (token.empty())
      for (token = "<unused_" + std::to_string(id) + ">"; known.contains(token);)
        token += "_";
    tokens.push_back(std::move(token));
  }
  return tokens;
}

class Tokens {
public:
  Tokens(const OurModel &model, int64_t sourceRows, int64_t targetRows)
      : model(model), description(model.description), vocabularies(model.vocabularies) {
    if (!vocabularies.source.empty())
      tokenizers[0] = makeTokenizer(vocabularies.source, "the vocabulary");
    if (!vocabularies.target.empty())
      tokenizers[1] = makeTokenizer(vocabularies.target, "the vocabulary");
    const Tokenizer *source = tokenizers[0].get(), *target = tokenizers[1] ? tokenizers[1].get() : source;
    lists[0] = tokensOf(source, sourceRows, description.tokens);
    lists[1] = tokensOf(target, targetRows, description.tokens);
    files = splitterFiles(vocabularies);
    // CTranslate2 knows the tokens with a meaning by one name for both languages.
    const auto eos = static_cast<size_t>(description.tokens.eos);
    if (lists[0].at(eos) != lists[1].at(eos))
      throw Error(model.file + ": the vocabulary of the source calls eos " + inQuotes(lists[0][eos]) +
                  ", and that of the target " + inQuotes(lists[1][eos]) + ", where CTranslate2 has one name for both");
  }

  bool readsText() const { return tokenizers[0] != nullptr; }

  std::string name(int32_t id) const {
    if (id < 0 || static_cast<size_t>(id) >= lists[1].size())
      throw Error(model.describedBy + ": the token " + std::to_string(id) + " is none of the " +
                  std::to_string(lists[1].size()) +
                  " that the exported model can write; expected the settings to name only those");
    return lists[1][static_cast<size_t>(id)];
  }

  Json config(const Form &form, bool zeroStart) const {
    const TokenIds &ids = description.tokens;
    // A tokenizer.json adds the tokens that a line begins and ends with, as do the programs that read it.
    const bool whole = files.contains("tokenizer.json") && frame();
    const bool eos = frame() ? isOnly(frame()->suffix, ids.eos) : ids.sourceEos;
    const bool bos = frame() && isOnly(frame()->prefix, ids.bos);
    const double usual = form.stacks[0].rms ? step::RmsNorm().eps : step::LayerNorm().eps;
    const bool isUsual = form.eps == usual && form.stacks[0].rms == form.stacks[1].rms;
    Json json = {{"add_source_bos", bos && !whole},    {"add_source_eos", eos && !whole},
                 {"bos_token", named(ids.bos, "<s>")}, {"decoder_start_token", name(zeroStart ? ids.eos : ids.start)},
                 {"eos_token", name(ids.eos)},         {"layer_norm_epsilon", isUsual ? Json() : Json(form.eps)},
                 {"multi_query_attention", false},     {"unk_token", named(ids.unk, "<unk>")}};
    if (!eos && !whole)
      json[ourSourceEos] = false;
    if (stripsLines(vocabularies.target.empty() ? vocabularies.source : vocabularies.target))
      json[ourStrip] = true;
    return json;
  }

  // The tokens around a source line that neither config.json nor a tokenizer.json puts there; "" if there are none.
  std::string frameNote() const {
    if (!frame() || files.contains("tokenizer.json"))
      return "";
    const auto named = [&](const std::vector<int32_t> &ids, int32_t known) {
      std::string text;
      for (const int32_t id : isOnly(ids, known) ? std::vector<int32_t>() : ids)
        text += " " + tokenizers[0]->piece(id);
      return text;
    };
    const std::string before = named(frame()->prefix, description.tokens.bos),
                      after = named(frame()->suffix, description.tokens.eos);
    if (before.empty() && after.empty())
      return "";
    return "config.json cannot hold the tokens around a line: put" +
           (before.empty() ? "" : before + " before the tokens of each line") +
           (before.empty() || after.empty() ? "" : ", and") +
           (after.empty() ? "" : after + (before.empty() ? " after the tokens of each line" : " after them"));
  }

  void write(NewFolder &folder) const {
    const auto list = [](const std::vector<std::string> &tokens) { return Json(tokens).dump(1) + "\n"; };
    if (lists[0] == lists[1]) {
      writeFile(folder.file("shared_vocabulary.json"), list(lists[0]));
    } else {
      writeFile(folder.file("source_vocabulary.json"), list(lists[0]));
      writeFile(folder.file("target_vocabulary.json"), list(lists[1]));
    }
    for (const auto &[file, contents] : files)
      writeFile(folder.file(file), contents);
  }

private:
  // The tokens around a source line; null if the model defines them.
  const Frame *frame() const { return tokenizers[0] ? tokenizers[0]->frame() : nullptr; }
  static bool isOnly(const std::vector<int32_t> &ids, int32_t id) { return ids == std::vector<int32_t>{id}; }
  std::string named(int32_t id, const char *otherwise) const {
    return id >= 0 && static_cast<size_t>(id) < lists[1].size() ? name(id) : otherwise;
  }

  const OurModel &model;
  const Description &description;
  const FolderVocabularies &vocabularies;
  std::unique_ptr<Tokenizer> tokenizers[2];
  std::vector<std::string> lists[2]; // [1]: the target's
  std::map<std::string, std::string> files;
};

// Says how a program asks CTranslate2 for the translations that the model gives here, since the folder cannot.
std::string searchNote(const OurModel &model, const Tokens &tokens, bool zeroStart) {
  const Generation &generation = model.generation;
  const TokenIds &ids = model.description.tokens;
  std::set<int32_t> never(generation.suppress.begin(), generation.suppress.end());
  if (zeroStart)
    never.erase(ids.pad); // it does not exist there
  else
    never.insert({ids.pad, ids.start}); // our search never writes these two
  never.erase(ids.eos);
  const auto namesOf = [&](const std::vector<int32_t> &sequence) {
    Json names = Json::array();
    for (const int32_t id : sequence)
      names.push_back(tokens.name(id));
    return names;
  };
  Json suppressed = Json::array();
  for (const int32_t id : never)
    suppressed.push_back(namesOf({id}));
  for (const std::vector<int32_t> &sequence : generation.badSequences) {
    if (zeroStart && std::find(sequence.begin(), sequence.end(), ids.pad) != sequence.end())
      continue; // nor does this sequence exist there
    suppressed.push_back(namesOf(sequence));
  }
  std::string text = "CTranslate2's folders hold no search settings; translate_batch(lines";
  const std::set<std::string> always = {"beam", "length_penalty", "min_length"}, // whose defaults differ there
      told = {"length_penalty_form", "forced_first"};
  std::vector<std::string> lacking;
  for (const GenerationSetting &setting : generationSettings()) {
    const Json value = valueOf(setting, generation);
    const bool differs = !isUsual(setting, generation);
    if (setting.subject == GenerationSetting::Subject::Sampling) // without which CTranslate2 searches with a beam
      continue;
    if (setting.elsewhere.ctranslate2 && value.is_number() && (always.contains(setting.name) || differs))
      text += std::string(", ") + setting.elsewhere.ctranslate2 + "=" + value.dump();
    else if (!setting.elsewhere.ctranslate2 && differs && !told.contains(setting.name))
      lacking.emplace_back(setting.name);
  }
  if (!suppressed.empty())
    text += ", suppress_sequences=" + suppressed.dump();
  if (!generation.forcedFirst.empty())
    text += ", target_prefix=[" + namesOf(generation.forcedFirst).dump() + "] * len(lines)";
  text += ") has those of this model";
  if (!lacking.empty())
    text += ", except for " + listed(lacking) + ", which CTranslate2 lacks";
  if (generation.repetitionPenalty != 1)
    text += ", except that CTranslate2 applies repetition_penalty to logits, not to log-probabilities";
  if (generation.beam > 1 && generation.lengthPenalty != 0 && generation.penaltyForm == Generation::PenaltyForm::Offset)
    text +=
        ", except that CTranslate2 divides scores by n^A, where this model's length_penalty_form \"offset\" divides "
        "by ((5+n)/6)^A";
  return text;
}

} // namespace

ForeignExport exportCtranslate2(const ExportOptions &options) {
  const OurModel model = readOurModel(options.from);
  ForeignExport result;
  result.weights = model.file;
  Form form;
  try {
    form = describeCtranslate2(model.description);
    check(model, form);
  } catch (const Error &difference) {
    throw Error(model.describedBy + ": CTranslate2 cannot compute this model: " + difference.what());
  }
  const bool zeroStart = startsFromZero(model);
  if (zeroStart) {
    form.stacks[1].vocab -= 1;
    // The encoder's table has the same row, unless the languages have vocabularies of their own.
    if (form.stacks[0].vocab == form.stacks[1].vocab + 1)
      form.stacks[0].vocab -= 1;
  }
  const Tokens tokens(model, form.stacks[0].vocab, form.stacks[1].vocab);
  if (!tokens.readsText())
    result.notes.push_back(options.from +
                           ": has no vocabulary; the tokens of the exported model are the ids, as text, and <pad>");
  if (const std::string note = tokens.frameNote(); !note.empty())
    result.notes.push_back(note);
  if (const std::string note = punctuationNote(model.vocabularies); !note.empty())
    result.notes.push_back(note);
  result.notes.push_back(searchNote(model, tokens, zeroStart));
  const std::string config = jsonText(tokens.config(form, zeroStart));
  Writer writer(model, form, zeroStart, options.quantization);
  writer.addAll();
  NewFolder folder(options.to);
  const std::string file = folder.file("model.bin");
  writer.write(file);
  result.tensors = writer.count();
  result.bytes = std::filesystem::file_size(file);
  writeFile(folder.file("config.json"), config);
  tokens.write(folder);
  folder.commit();
  result.files = folder.files();
  result.modelType = "CTranslate2";
  return result;
}

} // namespace xfc
