// Reads a CTranslate2 folder: model.bin holds the weights and the structure of the model; config.json and token lists
// define its tokens.
#include "Ctranslate2Form.h"
#include "Ctranslate2Model.h"
#include "Kinds.h"
#include "Rebuilt.h"
#include "TokenLists.h"
#include "support/Error.h"
#include "support/Files.h"
#include "support/LineReader.h"
#include "support/MappedFile.h"
#include "support/Quoted.h"
#include "tensors/Numbers.h"
#include <cmath>
#include <optional>
#include <set>

namespace xfc {
namespace {

using Json = nlohmann::ordered_json;

using namespace ctranslate2;

// The memory that the weights are views of.
struct Memory {
  MappedFile file;
  std::map<const char *, std::string> dequantized; // by the address of the quantized weights
};

class Ctranslate2 {
public:
  explicit Ctranslate2(const ForeignOptions &options)
      : given(options), file(options.from + "/model.bin"), memory(std::make_shared<Memory>(MappedFile::readOnly(file))),
        model(Ctranslate2Model::parse(memory->file.contents(), file)), weights(file, memory) {
    if (exists(options.from + "/config.json"))
      config = std::make_unique<Config>(options.from + "/config.json");
  }

  ForeignFiles read() {
    checkSpecification();
    readTokens();
    ForeignModel result = readModel();
    readVocabularies();
    if (!quantized.empty())
      result.notes.push_back(file + ": holds weights rounded to " + quantized +
                             ", which become F32; --compute-type int8 rounds them again when they run");
    result.notes.insert(result.notes.end(), notes.begin(), notes.end());
    // The defaults of CTranslate2's translate_batch.
    Json generation = {
        {"beam", 2},       {"length_penalty", 1.0}, {"length_penalty_form", "power"}, {"early_stopping", true},
        {"min_length", 1}, {"max_length", 256},     {"at_max_length", "cut"}};
    if (language >= 0)
      generation["forced_first"] = {language};
    std::vector<std::string> asked;
    if (config) {
      config->tellUnknown({"quantization_bits", "quantization_group_size"}, {}, result.notes);
      for (const std::string &key : config->asked())
        asked.push_back("config.json: " + key);
    }
    return {
        file, std::move(weights), std::move(result), std::move(generation), std::move(vocabularies), std::move(asked)};
  }

private:
  [[noreturn]] void fail(const std::string &variable, const std::string &what) const {
    throw Error(file + ": " + inQuotes(variable) + " " + what);
  }

  const TensorView *find(const std::string &name) {
    auto found = model.variables.find(name);
    if (found == model.variables.end())
      return nullptr;
    used.insert(name);
    return &found->second;
  }
  bool has(const std::string &name) const { return model.variables.contains(name); }

  // The number that a variable holds.
  double numberOf(const TensorView &variable) const {
    if (!variable.shape.empty())
      fail(variable.name, "has shape " + textOf(variable.shape) + "; expected one number");
    const auto as = [&]<typename Number>(Number stored) {
      std::memcpy(&stored, variable.bytes.data(), sizeof stored);
      return static_cast<double>(stored);
    };
    const double value = variable.type == "I8"    ? as(int8_t())
                         : variable.type == "I16" ? as(int16_t())
                         : variable.type == "I32" ? as(int32_t())
                                                  : floatsOf(variable).front();
    if (!std::isfinite(value))
      fail(variable.name, "is not a finite number");
    return value;
  }

  double number(const std::string &name, double otherwise) {
    const TensorView *found = find(name);
    return found ? numberOf(*found) : otherwise;
  }

  // An option of a stack; older models have one for both stacks.
  double option(bool decoder, const std::string &name, double otherwise) {
    const std::string own = stackNames[decoder] + ("/" + name);
    return number(!has(own) && model.revision < 5 ? name : own, otherwise);
  }

  // Sets a member of the form that an option belongs to.
  void set(double &member, const std::string &, double value) const { member = value; }
  void set(bool &member, const std::string &, double value) const { member = value != 0; }
  void set(int64_t &member, const std::string &name, double value) const {
    if (value != std::floor(value) || std::abs(value) > mostFeatures)
      fail(name,
           "is " + std::to_string(value) + "; expected a whole number of at most " + std::to_string(mostFeatures));
    member = static_cast<int64_t>(value);
  }

  void checkSpecification() {
    const std::string &name = model.specification;
    if (name != specification && name != "TransformerBase" && name != "TransformerBig")
      throw Error(file + ": is a model of " + inQuotes(name) + "; expected " + inQuotes(specification) +
                  ", an encoder and a decoder");
    if (model.revision < 1 || model.revision > revision)
      throw Error(file + ": is of revision " + std::to_string(model.revision) +
                  " of its specification; expected 1 to " + std::to_string(revision) +
                  "; convert the model again by CTranslate2's converter");
    if (config && config->number("quantization_type", 0, 1e6, false, 0) != 0)
      config->fail("quantization_type",
                   "weights of fewer than 8 bits cannot be imported; expected those they were made of");
    if (config)
      config->only("multi_query_attention", false, "no step computes it so");
  }

  //===-- tensors
  //-----------------------------------------------------------------------------------------------------===//

  TensorView tensor(const std::string &name, const std::vector<int64_t> &expected) {
    const TensorView *found = find(name);
    if (!found)
      throw Error(file + ": " + inQuotes(name) + " " + textOf(expected) + " is missing");
    if (found->shape != expected)
      fail(name, "has shape " + textOf(found->shape) + "; expected " + textOf(expected));
    return *found;
  }

  TensorView vector(const std::string &name, int64_t n) {
    TensorView found = tensor(name, {n});
    vectorType(found);
    return found;
  }

  // Dequantizes a matrix if necessary: there is a scale by which each row was multiplied, or one for all rows. The
  // result is kept for each variable, so that tied matrices stay tied.
  TensorView matrix(const std::string &name, int64_t out, int64_t in) {
    TensorView stored = tensor(name, {out, in});
    if (stored.type == "F32" || stored.type == "F16" || stored.type == "BF16")
      return stored;
    if (stored.type != "I8" && stored.type != "I16")
      fail(name, "has type " + stored.type + "; expected F32, F16, BF16, or I8 or I16 with scales");
    const TensorView *scales = find(name + "_scale");
    constexpr float oldScale = 1000; // of I16, before such weights had scales of their own
    std::vector<float> scale = {oldScale};
    if (scales) {
      if (scales->type != "F32" || (!scales->shape.empty() && scales->shape != std::vector<int64_t>{out}))
        fail(name + "_scale",
             "has shape " + textOf(scales->shape) + " of " + scales->type + "; expected one F32, or " + textOf({out}));
      scale = floatsOf(*scales);
    } else if (stored.type == "I8") {
      throw Error(file + ": " + inQuotes(name + "_scale") + " is missing, which " + inQuotes(name) +
                  " was multiplied by");
    }
    for (const float one : scale)
      if (!(std::isfinite(one) && one > 0))
        fail(name + "_scale", "holds " + std::to_string(one) + "; expected numbers above 0");
    quantized = stored.type == "I8" ? "8 bits" : "16 bits";
    auto [made, isNew] = memory->dequantized.try_emplace(stored.bytes.data());
    if (isNew) {
      std::vector<float> numbers(static_cast<size_t>(out * in));
      const auto fill = [&]<typename Number>(Number number) {
        for (size_t i = 0; i < numbers.size(); ++i) {
          std::memcpy(&number, stored.bytes.data() + i * sizeof number, sizeof number);
          numbers[i] = static_cast<float>(number) / scale[scale.size() == 1 ? 0 : i / static_cast<size_t>(in)];
        }
      };
      stored.type == "I8" ? fill(int8_t()) : fill(int16_t());
      made->second = bytesOf(numbers);
    }
    return {name, "F32", {out, in}, made->second};
  }

  // Adds the parameters that a variable holds. A linear layer without a bias, in a model where others have one, gets
  // zeros.
  void addParts(const Variable &variable) {
    const std::vector<int64_t> shape = variable.shape();
    const bool zeros = variable.name.ends_with("/bias") && !has(variable.name);
    const TensorView whole = zeros                  ? TensorView{}
                             : variable.columns > 0 ? matrix(variable.name, shape[0], shape[1])
                                                    : vector(variable.name, shape[0]);
    int64_t row = 0;
    for (const Part &part : variable.parts) {
      if (zeros)
        addFloats(weights, part.ours, {part.rows}, std::vector<float>(static_cast<size_t>(part.rows)));
      else
        addAs(weights, part.ours, rowsOf(whole, row, part.rows));
      row += part.rows;
      tensors.push_back({part.ours, part.ours});
    }
  }

  //===-- tokens
  //------------------------------------------------------------------------------------------------------===//

  std::vector<std::string> readList(const std::string &name, std::string &from) const {
    from = firstOf(given.from, {name + ".json", name + ".txt"});
    if (from.empty())
      return {};
    std::vector<std::string> tokens;
    if (from.ends_with(".txt")) {
      tokens = readLines(from);
    } else {
      const nlohmann::json json = parseJson(readFile(from, mostLargeBytes), from, mostLargeBytes);
      if (!json.is_array())
        throw Error(from + ": expected a list of tokens, found " + std::string(json.type_name()));
      const JsonValue list(json, from, "");
      for (const JsonValue &token : list.elements())
        tokens.push_back(token.string());
    }
    if (tokens.empty())
      throw Error(from + ": is empty; expected a list of tokens");
    if (const std::string unk = tokenName("unk_token", "<unk>"); findToken(tokens, unk) < 0)
      tokens.push_back(unk); // as CTranslate2 does
    return tokens;
  }

  // Older models store the names of tokens as variables of bytes.
  std::string tokenName(const char *key, const char *otherwise) const {
    if (config && config->has(key))
      return config->at(key, "").string();
    if (auto found = model.variables.find(key); found != model.variables.end() && found->second.type == "I8")
      return std::string(found->second.bytes);
    return otherwise;
  }

  // The target's id of a token that the model needs.
  int32_t idOf(const char *key, const char *otherwise) const {
    const std::string name = tokenName(key, otherwise);
    const int32_t found = findToken(tokens[1], name);
    if (found < 0)
      throw Error(listFile[1] + ": has no token " + escaped(name) + ", which is the model's " + key);
    return found;
  }

  void readTokens() {
    std::string from[2];
    tokens[0] = readList("shared_vocabulary", from[0]);
    if (!tokens[0].empty()) {
      tokens[1] = tokens[0];
      from[1] = from[0];
    } else {
      tokens[0] = readList("source_vocabulary", from[0]);
      tokens[1] = readList("target_vocabulary", from[1]);
    }
    if (!firstOf(given.from, {"source_1_vocabulary.json", "source_1_vocabulary.txt"}).empty())
      throw Error(given.from + ": has several source vocabularies; models with features of words cannot be imported");
    for (const int i : {0, 1})
      if (tokens[i].empty())
        throw Error(given.from + ": has no " + (i ? "target" : "source") +
                    "_vocabulary.json and no shared_vocabulary.json; expected "
                    "the lists of tokens that a CTranslate2 folder has");
    listFile[0] = from[0];
    listFile[1] = from[1];
    ids.eos = idOf("eos_token", "</s>");
    ids.unk = idOf("unk_token", "<unk>");
    ids.bos = findToken(tokens[1], tokenName("bos_token", "<s>"));
    zeroStart = number(zeroStartName, 0) != 0;
    readStart();
    readSourceFrame();
  }

  void readStart() {
    const auto id = [&](const char *key, const char *otherwise) { return idOf(key, otherwise); };
    start = ids.eos;
    // Older models say this in flags among the variables, which config.json replaces.
    const bool targetBos = number("with_target_bos", 1) != 0, byCaller = number("user_decoder_start_tokens", 0) != 0;
    const bool chosen = config ? config->has("decoder_start_token") : !byCaller;
    if (zeroStart)
      return;
    if (chosen) {
      start = config ? id("decoder_start_token", "<s>")
                     : id(targetBos ? "bos_token" : "eos_token", targetBos ? "<s>" : "</s>");
      language = languageToken(1, given.targetLanguage);
      if (language < 0 && !given.targetLanguage.empty())
        throw Error(listFile[1] + ": has no token for --target-language " + given.targetLanguage +
                    "; expected a language as the list of tokens has it");
    } else {
      start = languageToken(1, given.targetLanguage);
      if (start < 0)
        throw Error((config ? config->file() : file) +
                    ": decoder_start_token: null: its translations begin with a token that is given "
                    "with each line; name it by --target-language, as the list of tokens has it" +
                    (given.targetLanguage.empty() ? "" : ", which has no " + given.targetLanguage));
    }
  }

  // Finds out which tokens surround a source line. CTranslate2 adds those that the folder asks for. If it adds no eos,
  // either the program that splits lines does, as the tokenizers of transformers do, or the model was trained without.
  void readSourceFrame() {
    const auto flag = [&](const char *key, const char *variable) {
      const bool old = number(variable, 0) != 0;
      return config ? config->boolean(key, false) : old;
    };
    sourceBos = flag("add_source_bos", "with_source_bos") && ids.bos >= 0;
    sourceEos = flag("add_source_eos", "with_source_eos");
    if (sourceEos)
      return;
    const std::string where = (config ? config->file() : file) + ": " + (config ? "add_source_eos" : "with_source_eos");
    if (config && config->has(ourSourceEos)) { // the folder is one of ours
      sourceEos = config->boolean(ourSourceEos, false);
      return;
    }
    if (exists(given.from + "/tokenizer.json")) // says itself what surrounds a line
      return;
    const std::string tokenizer = tokenizerOfTransformers();
    // OpenNMT's models begin with <s>, those of transformers with another token.
    sourceEos = !tokenizer.empty() || zeroStart || start != ids.bos;
    notes.push_back(
        where + ": false, and " +
        (!tokenizer.empty() ? tokenizer + " is of transformers, whose tokenizers add eos, so source lines end with it"
         : sourceEos
             ? "translations begin with " + (zeroStart ? "nothing" : escaped(tokens[1][static_cast<size_t>(start)])) +
                   ", as in models of transformers, whose tokenizers add eos, so source lines end with it"
             : "translations begin with " + escaped(tokens[1][static_cast<size_t>(start)]) +
                   ", as in models of OpenNMT, so source lines do not end with eos") +
        "; source_eos of model.json, or the vocabulary, says so");
  }

  // A file by which the folder shows that a tokenizer of transformers reads and writes its text; empty if there is
  // none.
  std::string tokenizerOfTransformers() const {
    return firstOf(given.from,
                   {"tokenizer_config.json", "special_tokens_map.json", "sentencepiece.bpe.model", "spiece.model"});
  }

  int32_t languageToken(int which, const std::string &language) const {
    if (language.empty())
      return -1;
    const int32_t id = findToken(tokens[which], language);
    return id >= 0 ? id : findToken(tokens[which], "__" + language + "__");
  }

  // Finds the number of rows of the two tables, and a token for padding: one of the list, or else an extra row of
  // zeros, which is also what Marian's decoder begins with.
  void readTable() {
    for (const int i : {0, 1}) {
      std::string scope = embeddingName(i);
      if (const std::string single = std::string(stackNames[i]) + "/embeddings/weight"; !has(scope) && has(single))
        scope = single;
      const TensorView *table = find(scope);
      if (!table)
        throw Error(file + ": " + inQuotes(scope) + " is missing");
      if (table->shape.size() != 2 || table->shape[0] < 1 || table->shape[1] < 1)
        fail(scope, "has shape " + textOf(table->shape) + "; expected tokens by features");
      if (table->shape[0] > mostVocab || table->shape[1] > mostFeatures)
        fail(scope, "has shape " + textOf(table->shape) + "; expected at most " +
                        textOf(std::vector<int64_t>{mostVocab, mostFeatures}));
      tableName[i] = scope;
      vocab[i] = table->shape[0];
      if (static_cast<int64_t>(tokens[i].size()) > vocab[i])
        throw Error(listFile[i] + ": has " + std::to_string(tokens[i].size()) + " tokens, but " + inQuotes(scope) +
                    " of " + file + " has " + std::to_string(vocab[i]) + " rows");
    }
    form.dim = model.variables.at(tableName[0]).shape[1];
    if (model.variables.at(tableName[1]).shape[1] != form.dim)
      fail(tableName[1], "has " + std::to_string(model.variables.at(tableName[1]).shape[1]) + " features and " +
                             inQuotes(tableName[0]) + " " + std::to_string(form.dim) + "; expected the same number");
    const auto padding = [&](int which) {
      const int32_t pad = findToken(tokens[which], "<pad>");
      return pad >= 0 ? pad : findToken(tokens[which], "<blank>");
    };
    const int64_t smaller = std::min(vocab[0], vocab[1]);
    ids.pad = padding(1);
    rows[0] = vocab[0];
    rows[1] = vocab[1];
    const int32_t largest = std::max({ids.pad, ids.eos, ids.unk, ids.bos, start});
    if (zeroStart || ids.pad < 0 || ids.pad == ids.eos || ids.pad != padding(0) || largest >= smaller) {
      rows[0] = rows[1] = std::max(vocab[0], vocab[1]) + 1;
      ids.pad = static_cast<int32_t>(rows[0] - 1);
      if (zeroStart)
        start = ids.pad;
    }
  }

  // Adds the tables of embeddings and the output.
  EmbeddingTensors addTables() {
    EmbeddingTensors tied = {"encoder.embed.weight", "decoder.embed.weight", "output.weight"};
    const std::string output = std::string(outputName) + "/weight";
    const char *const tables[2] = {model.variables.at(tableName[0]).bytes.data(),
                                   model.variables.at(tableName[1]).bytes.data()};
    addTable(weights, tied.encoder, matrix(tableName[0], vocab[0], form.dim), rows[0]);
    if (tables[0] == tables[1])
      tied.decoder = tied.encoder;
    else
      addTable(weights, tied.decoder, matrix(tableName[1], vocab[1], form.dim), rows[1]);
    const TensorView projection = tensor(output, {vocab[1], form.dim});
    if (projection.bytes.data() == tables[1])
      tied.output = tied.decoder;
    else if (projection.bytes.data() == tables[0])
      tied.output = tied.encoder;
    else
      addTable(weights, tied.output, matrix(output, vocab[1], form.dim), rows[1]);
    for (const std::string &name : {output, tableName[1]})
      find(name + "_scale"); // marks it as used, since a tied table is not read again
    return tied;
  }

  // Adds the output's bias. Rows without a token, if there are any, get one by which they are never chosen.
  void addOutputBias() {
    const std::string name = std::string(outputName) + "/bias";
    form.outputBias = has(name) || rows[1] > vocab[1];
    if (!form.outputBias)
      return;
    const std::string zeros = bytesOf(std::vector<float>(static_cast<size_t>(vocab[1])));
    const TensorView own = has(name) ? vector(name, vocab[1]) : TensorView{"", "F32", {vocab[1]}, zeros};
    addLogitsBias(weights, &own, rows[1]);
    tensors.push_back({"output.bias", "final_logits_bias", /*row=*/true});
  }

  //===-- the model
  //---------------------------------------------------------------------------------------------------===//

  ForeignModel readModel() {
    readTable();
    form.maxLength = 1024; // unless a table of positions has fewer or more
    for (const bool decoder : {false, true})
      readStack(decoder);
    form.outputScale = exactly(number(outputScaleName, 1), 1 / root());
    form.eps = config ? config->number("layer_norm_epsilon", 1e-30, 1, false, 0) : 0;
    for (const auto &[ours, table] : learned) {
      addAs(weights, ours, rowsOf(table, 0, form.maxLength));
      tensors.push_back({ours, ours});
    }
    addOutputBias();
    Json share = mapEmbeddings(addTables(), tensors);
    for (const bool decoder : {false, true})
      shareDistanceBiases(decoder, share);
    for (const Variable &variable : variablesOf(form))
      if (!sharedTables.contains(variable.name))
        addParts(variable);
    checkAllUsed();
    Json steps = describe(form);
    ForeignModel result;
    result.description["params"] = std::move(steps["params"]);
    result.description["tokens"] = {{"pad", ids.pad}, {"unk", ids.unk}, {"bos", ids.bos < 0 ? start : ids.bos},
                                    {"eos", ids.eos}, {"start", start}, {"source_eos", sourceEos}};
    if (!share.empty())
      result.description["share"] = std::move(share);
    for (const char *part : {"encoder", "decoder", "head"})
      result.description[part] = std::move(steps[part]);
    result.tensors = std::move(tensors);
    return result;
  }

  void readStack(bool decoder) {
    Stack &stack = form.stacks[decoder];
    const std::string name = stackNames[decoder], first = name + "/layer_0/";
    stack.vocab = rows[decoder];
    const auto there = [&](int64_t layer) {
      const std::string scope = name + "/layer_" + std::to_string(layer) + "/";
      const auto next = model.variables.lower_bound(scope);
      return next != model.variables.end() && next->first.starts_with(scope);
    };
    while (stack.layers < mostLayers && there(stack.layers))
      ++stack.layers;
    if (stack.layers == 0)
      throw Error(file + ": has no " + inQuotes(name + "/layer_0") +
                  "; expected an encoder and a decoder of one layer or more");

    eachOption(stack, [&](const std::string &own, const char *, auto &member, double otherwise) {
      // The options of a TransformerBig differ from the others' in this one.
      const bool big = own == "num_heads" && model.specification == "TransformerBig";
      set(member, name + "/" + own, option(decoder, own, big ? 16 : otherwise));
    });
    if (stack.heads < 1)
      fail(name + "/num_heads", "is " + std::to_string(stack.heads) + "; expected a whole number from 1");
    const auto code = static_cast<size_t>(stack.activation);
    if (code >= activations().size() || activations()[code].empty())
      fail(name + "/activation", "is " + std::to_string(stack.activation) +
                                     "; expected 0 (ReLU), 1 (GELU by tanh), 2 (Swish), 3 (GELU) or 5 (tanh)");
    for (const char *absent : {"alibi", "sliding_window", "multi_query_attention"})
      if (option(decoder, absent, 0) != 0)
        fail(name + "/" + absent, "cannot be imported; no step computes it so");
    for (const char *other :
         {"alibi_use_positive_positions", "scale_alibi", "alignment_layer", "alignment_heads", "embeddings_merge"})
      option(decoder, other, 0); // marks it as used: it belongs to an absent feature or does not change translations

    stack.rms = !has(first + "self_attention/layer_norm/beta");
    stack.embeddingNorm = has(name + "/layernorm_embedding/gamma");
    stack.finalNorm = has(name + "/layer_norm/gamma");
    stack.embeddingScale = embeddingScale(decoder);
    readAttention(decoder, stack.self);
    stack.cross.cross = true;
    if (decoder)
      readAttention(decoder, stack.cross);
    stack.ffn = rowsOfProduct(first + "ffn/linear_0/weight");
    stack.gated = has(first + "ffn/linear_0_noact/weight");
    stack.ffnInBias = anyLayerHas(decoder, "ffn/linear_0/bias") || anyLayerHas(decoder, "ffn/linear_0_noact/bias");
    stack.ffnOutBias = anyLayerHas(decoder, "ffn/linear_1/bias");
    if (!stack.self.hasPositions())
      stack.positions = positions(decoder);
  }

  bool anyLayerHas(bool decoder, const std::string &name) const {
    for (int64_t layer = 0; layer < form.stacks[decoder].layers; ++layer)
      if (has(stackNames[decoder] + ("/layer_" + std::to_string(layer) + "/") + name))
        return true;
    return false;
  }

  // The rows of a product of the model's rows.
  int64_t rowsOfProduct(const std::string &name) {
    const TensorView *found = find(name);
    if (!found)
      throw Error(file + ": " + inQuotes(name) + " is missing");
    if (found->shape.size() != 2 || found->shape[1] != form.dim || found->shape[0] < 1)
      fail(name, "has shape " + textOf(found->shape) + "; expected features by " + std::to_string(form.dim));
    return found->shape[0];
  }

  // Without queries_scale, the scale is that of the features of a head, of which there must be some then. A number that
  // the file gives must have a meaning in any case.
  void checkHeadDim(const Attention &attention, const std::string &scope) const {
    const std::string name = scope + "head_dim";
    if (attention.headDim < 1 && (has(name) || !has(scope + "queries_scale")))
      fail(name, (has(name) ? "is " : "is missing, which means ") + std::to_string(attention.headDim) +
                     "; expected 1 or more features of a head");
  }

  void readAttention(bool decoder, Attention &attention) {
    const Stack &stack = form.stacks[decoder];
    const std::string first = attentionScope(decoder, 0, attention.cross) + "/";
    // An option, which must be the same in all layers.
    const auto read = [&](const std::string &name, double otherwise) {
      const double value = number(first + name, otherwise);
      for (int64_t layer = 1; layer < stack.layers; ++layer) {
        const std::string other = attentionScope(decoder, layer, attention.cross) + "/" + name;
        if (number(other, otherwise) != value)
          fail(other, "differs from " + inQuotes(first + name) + "; expected the same in all layers");
      }
      return value;
    };
    eachOption(attention, form.dim, stack.heads,
               [&](const std::string &name, const char *, auto &member, double otherwise) {
                 set(member, first + name, read(name, otherwise));
                 checkHeadDim(attention, first); // before the usual queries_scale is computed from it
               });
    if (attention.kvHeads < 1 || stack.heads % attention.kvHeads)
      fail(first + "num_heads_kv", "is " + std::to_string(attention.kvHeads) + "; expected a divisor of the " +
                                       std::to_string(stack.heads) + " heads of " +
                                       inQuotes(std::string(stackNames[decoder]) + "/num_heads"));
    if (!(attention.queriesScale > 0) || !std::isfinite(attention.queriesScale))
      fail(first + "queries_scale", "is " + std::to_string(attention.queriesScale) + "; expected a number above 0");
    // CTranslate2 takes the features of a head from the weights, too: T5's differ from the option.
    const std::string inner = first + (attention.cross ? "linear_0/weight" : "linear_1/weight");
    const TensorView *product = find(inner);
    const int64_t n = product && product->shape.size() == 2 ? product->shape[attention.cross ? 0 : 1] : 0;
    if (n < 1 || n % stack.heads)
      fail(inner, "is missing, or its features are no multiple of the " + std::to_string(stack.heads) + " heads of " +
                      inQuotes(std::string(stackNames[decoder]) + "/num_heads"));
    attention.headDim = n / stack.heads;
    const auto bias = [&](const std::string &name) {
      return anyLayerHas(decoder, (attention.cross ? "attention/" : "self_attention/") + name + "/bias");
    };
    attention.biasQ = bias("linear_0");
    attention.biasK = attention.biasV = bias(attention.cross ? "linear_1" : "linear_0");
    attention.biasO = bias(attention.cross ? "linear_2" : "linear_1");
    const std::string table = first + "relative_attention_bias";
    const TensorView *biases = attention.cross ? nullptr : find(table);
    if (!biases)
      return;
    if (biases->shape.size() != 2 || biases->shape[0] < 1 || biases->shape[1] != stack.heads)
      fail(table, "has shape " + textOf(biases->shape) + "; expected one bucket or more, by " +
                      std::to_string(stack.heads) + " heads");
    attention.buckets = biases->shape[0];
    const double distance = read(maxDistanceOption, 128);
    if (!(distance >= 2 && distance <= maxPositions))
      fail(first + maxDistanceOption,
           "is " + std::to_string(distance) + "; expected a whole number from 2 to " + std::to_string(maxPositions));
    set(attention.maxDistance, first + maxDistanceOption, distance);
  }

  // CTranslate2 adds the biases by distance of a stack's first layer in all of its layers, so these must have one
  // table.
  void shareDistanceBiases(bool decoder, Json &share) {
    const Stack &stack = form.stacks[decoder];
    if (stack.self.buckets == 0 || stack.layers < 2)
      return;
    Json group = Json::array();
    const TensorView *first = nullptr;
    for (int64_t layer = 0; layer < stack.layers; ++layer) {
      const std::string name = attentionScope(decoder, layer, false) + "/relative_attention_bias";
      const TensorView *table = find(name);
      if (!table)
        throw Error(file + ": " + inQuotes(name) + " is missing");
      if (layer == 0)
        first = table;
      else if (table->type != first->type || table->shape != first->shape || table->bytes != first->bytes)
        fail(name,
             "differs from " + inQuotes(first->name) +
                 "; expected the same in all layers, since CTranslate2 adds the biases of the first layer in all");
      else
        sharedTables.insert(name);
      group.push_back(std::string(stackNames[decoder]) + ".layers." + std::to_string(layer) +
                      ".self_attn.distance_bias.weight");
    }
    share.push_back(group);
  }

  // The factor of a stack's embeddings: a flag or, as a float, the factor itself.
  double embeddingScale(bool decoder) {
    const TensorView *scale = find(embeddingScaleName(decoder));
    if (!scale)
      for (const char *old : {"/embeddings_0/multiply_by_sqrt_depth", "/embeddings/multiply_by_sqrt_depth"})
        if (const TensorView *found = find(std::string(stackNames[decoder]) + old))
          scale = found;
    if (!scale)
      return root();
    const double value = numberOf(*scale);
    return scale->type == "I8" ? (value != 0 ? root() : 1) : exactly(value, root());
  }

  double root() const { return std::sqrt(static_cast<double>(form.dim)); }
  // A number, or `expected` if it is that, rounded to a float of 16 or 32 bits.
  static double exactly(double number, double expected) {
    return std::abs(number - expected) <= 1e-3 * expected ? expected : number;
  }

  // The step for positions. A table of sinusoids becomes a computed table, so that it is not a parameter that training
  // changes. The number of positions becomes the smallest of those of the tables.
  Json positions(bool decoder) {
    const int64_t d = form.dim;
    const TensorView *table = find(positionsName(decoder));
    if (!table) {
      if (d % 2 || d < 4)
        fail(tableName[decoder],
             "has " + std::to_string(d) + " features; positions that are computed need an even number, at least 4");
      return sinusoidalPositions(d, 1); // as CTranslate2 computes them
    }
    if (table->shape.size() != 2 || table->shape[1] != d || table->shape[0] < 1 || table->shape[0] > maxPositions)
      fail(table->name, "has shape " + textOf(table->shape) + "; expected positions by " + std::to_string(d));
    vectorType(*table);
    const bool second = decoder && find(positionsName(false));
    form.maxLength = second ? std::min(form.maxLength, table->shape[0]) : table->shape[0];
    if (const std::optional<step::SinusoidalPositions> sines = sinusoidsOf(*table))
      return stepOf(*sines, "$max_length");
    const std::string ours = std::string(stackNames[decoder]) + ".pos.weight";
    learned.push_back({ours, *table});
    return learnedPositions();
  }

  void vectorType(const TensorView &variable) const {
    if (variable.type != "F32" && variable.type != "F16" && variable.type != "BF16")
      fail(variable.name, "has type " + variable.type + "; expected F32, F16 or BF16");
  }

  // The positions whose sines and cosines a table holds, if it holds any.
  std::optional<step::SinusoidalPositions> sinusoidsOf(const TensorView &table) const {
    const std::vector<float> numbers = floatsOf(table);
    const int64_t rows = table.shape[0], d = form.dim;
    double least = table.type == "F32" ? 1e-3 : table.type == "F16" ? 2e-3 : 8e-3; // of a table computed in F32
    const auto differenceFrom = [&](const step::SinusoidalPositions &positions, int64_t count) {
      const std::vector<float> expected = sinusoids(positions, count, d);
      double most = 0;
      for (size_t i = 0; i < expected.size(); ++i)
        most = std::max<double>(most, std::abs(numbers[i] - expected[i]));
      return most;
    };
    std::vector<double> multipliers = {1, 2};
    if (d > 2)
      multipliers.push_back(static_cast<double>(d) / static_cast<double>(d - 2)); // down to exactly 1/10000
    std::optional<step::SinusoidalPositions> best;
    for (const int64_t offset : {0, 1, 2})
      for (const double multiplier : multipliers)
        for (const double cosineOffset : {0, 1})
          for (const bool halves : {true, false}) {
            step::SinusoidalPositions candidate;
            candidate.offset = offset;
            candidate.exponentMultiplier = multiplier;
            candidate.cosineOffset = cosineOffset;
            candidate.halves = halves;
            // The first rows tell most of them apart.
            if (differenceFrom(candidate, std::min<int64_t>(rows, 3)) > least)
              continue;
            if (const double most = differenceFrom(candidate, rows); most < least) {
              least = most;
              best = candidate;
            }
          }
    return best;
  }

  // Fails if a variable was not read: the model would use it, but the imported steps would not.
  void checkAllUsed() const {
    static const std::set<std::string> told = {"unk_token", "bos_token", "eos_token"}; // tokenName() reads them
    for (const auto &[name, variable] : model.variables)
      if (!used.contains(name) && !told.contains(name))
        fail(name, textOf(variable.shape) +
                       " cannot be imported: no step computes with it; expected an encoder and a decoder as in "
                       "Marian, BART, M2M100 or T5");
  }

  //===-- vocabularies
  //------------------------------------------------------------------------------------------------===//

  // CTranslate2 returns pieces. Its callers decode them by SentencePiece, if not by a tokenizer of transformers.
  bool stripsTranslations() const {
    const bool transformers = !tokenizerOfTransformers().empty();
    return config ? config->boolean(ourStrip, transformers) : transformers;
  }

  void readVocabularies() {
    // The token lists lack the padding token if readTable() added one.
    const std::string pieces[2] = {firstOf(given.from, {"source.spm", "sentencepiece.bpe.model", "spiece.model",
                                                        "sentencepiece.model", "spm.model", "source.spm.model"}),
                                   firstOf(given.from, {"target.spm", "sentencepiece.bpe.model", "spiece.model",
                                                        "sentencepiece.model", "spm.model", "target.spm.model"})};
    if (exists(given.from + "/tokenizer.json")) {
      vocabularies = vocabulariesOfFolder(given.from, "", given.sourceLanguage, given.targetLanguage);
      notes.insert(notes.end(), vocabularies.notes.begin(), vocabularies.notes.end());
      return;
    }
    std::string made[2];
    const bool strip = !pieces[1].empty() && stripsTranslations();
    for (const int i : {0, 1}) {
      TokenList list{listFile[i], tokens[i], pieces[i], ids, {}, strip};
      list.ids.eos = findToken(tokens[i], tokenName("eos_token", "</s>"));
      list.ids.unk = findToken(tokens[i], tokenName("unk_token", "<unk>"));
      list.ids.bos = findToken(tokens[i], tokenName("bos_token", "<s>"));
      if (list.ids.eos < 0 || list.ids.eos != ids.eos)
        throw Error(listFile[i] + ": has " + escaped(tokenName("eos_token", "</s>")) + " at " +
                    std::to_string(list.ids.eos) + ", and the list of the target at " + std::to_string(ids.eos) +
                    "; expected the same in both");
      list.tokens.resize(static_cast<size_t>(std::max<int64_t>(static_cast<int64_t>(list.tokens.size()), ids.pad + 1)));
      if (rows[i] > vocab[i])
        list.tokens[static_cast<size_t>(ids.pad)] = "<pad>";
      const std::string &language = i ? given.targetLanguage : given.sourceLanguage;
      if (!language.empty() && !(i && start == languageToken(1, language))) {
        const int32_t id = languageToken(i, language);
        if (id < 0)
          throw Error(listFile[i] + ": has no language " + language + "; give one of its tokens");
        list.frame.prefix = {id};
      } else if (i == 0 && sourceBos && list.ids.bos >= 0) {
        list.frame.prefix = {list.ids.bos};
      }
      if (i == 1 || sourceEos)
        list.frame.suffix = {list.ids.eos};
      if (i == 0 && list.pieces.empty() && !list.frame.prefix.empty())
        notes.push_back(list.file + ": a list of words puts nothing before lines; begin each source line with " +
                        escaped(list.tokens[static_cast<size_t>(list.frame.prefix.front())]));
      try {
        made[i] = vocabularyOf(list);
      } catch (const Error &error) {
        if (!list.pieces.empty())
          throw;
        notes.push_back(error.what() + std::string("; the model takes ids (--format ids)"));
        return;
      }
    }
    vocabularies.source = made[0];
    if (made[1] != made[0])
      vocabularies.target = made[1];
  }

  const ForeignOptions &given;
  std::string file;
  std::shared_ptr<Memory> memory;
  Ctranslate2Model model;
  Weights weights;
  std::unique_ptr<Config> config;
  std::set<std::string> used;
  std::string quantized;
  std::vector<std::string> notes, tokens[2];
  std::string listFile[2], tableName[2];
  SpecialTokens ids;
  int32_t start = -1;
  int32_t language = -1; // the token that every translation begins with after the start, if any
  bool zeroStart = false, sourceBos = false, sourceEos = true;
  FolderVocabularies vocabularies;
  Form form;
  std::vector<TensorName> tensors;
  std::vector<std::pair<std::string, TensorView>> learned; // tables of positions, by our names
  std::set<std::string> sharedTables;                      // variables that are the first layer's
  int64_t vocab[2] = {}, rows[2] = {};                     // [1]: the decoder's
};

} // namespace

bool isCtranslate2(const std::string &path) { return exists(path + "/model.bin"); }

ForeignFiles readCtranslate2(const ForeignOptions &options) { return Ctranslate2(options).read(); }

} // namespace xfc
