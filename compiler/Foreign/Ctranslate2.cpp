// Reads a CTranslate2 folder: model.bin holds the weights and the structure of the model; config.json and token lists
// define its tokens.
#include "Ctranslate2Model.h"
#include "Kinds.h"
#include "Rebuilt.h"
#include "TokenLists.h"
#include "support/Error.h"
#include "support/Files.h"
#include "tensors/Numbers.h"
#include <cmath>
#include <filesystem>
#include <set>

namespace fs = std::filesystem;

namespace xfc {
namespace {

using Json = nlohmann::ordered_json;

const char *const names[2] = {"encoder", "decoder"};

// Whether a variable is a single number.
bool isScalar(const TensorView &variable) { return variable.shape.empty(); }

double scalarOf(const TensorView &variable) {
  const auto as = [&]<typename Number>(Number number) {
    std::memcpy(&number, variable.bytes.data(), sizeof number);
    return static_cast<double>(number);
  };
  if (variable.type == "I8")
    return as(int8_t());
  if (variable.type == "I16")
    return as(int16_t());
  if (variable.type == "I32")
    return as(int32_t());
  return floatsOf(variable).front();
}

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
    ForeignModel result = isT5() ? readT5() : readStacks();
    if (const double eps = config ? config->number("layer_norm_epsilon", 1e-30, 1, false, 0) : 0; eps > 0)
      for (const char *stack : names)
        setNormEps(result.description[stack], eps);
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
    return {file, std::move(weights), std::move(result), std::move(generation), std::move(vocabularies)};
  }

private:
  [[noreturn]] void fail(const std::string &variable, const std::string &what) const {
    throw Error(file + ": '" + variable + "' " + what);
  }

  const TensorView *find(const std::string &name) {
    auto found = model.variables.find(name);
    if (found == model.variables.end())
      return nullptr;
    used.insert(name);
    return &found->second;
  }
  bool has(const std::string &name) const { return model.variables.contains(name); }

  // An option of a stack; older models have one for both stacks.
  double option(const std::string &stack, const std::string &name, double otherwise) {
    const TensorView *found = find(stack + "/" + name);
    if (!found && model.revision < 5)
      found = find(name);
    if (!found)
      return otherwise;
    if (!isScalar(*found))
      fail(found->name, "has shape " + textOf(found->shape) + "; expected one number");
    return scalarOf(*found);
  }
  // An option that must be the same in both stacks.
  double both(const std::string &name, double otherwise) {
    const double encoder = option("encoder", name, otherwise), decoder = option("decoder", name, otherwise);
    if (encoder != decoder)
      fail("decoder/" + name, "is another than 'encoder/" + name + "'; expected the same in both stacks");
    return encoder;
  }

  void checkSpecification() {
    const std::string &specification = model.specification;
    if (specification != "TransformerSpec" && specification != "TransformerBase" && specification != "TransformerBig")
      throw Error(file + ": is a model of '" + specification +
                  "'; expected 'TransformerSpec', an encoder and a decoder");
    constexpr uint32_t first = 2, last = 7;
    if (model.revision < first || model.revision > last)
      throw Error(file + ": is of revision " + std::to_string(model.revision) + " of its specification; expected " +
                  std::to_string(first) + " to " + std::to_string(last) +
                  "; convert the model again by CTranslate2's converter");
    if (config && config->number("quantization_type", 0, 1e6, false, 0) != 0)
      config->fail("quantization_type",
                   "weights of fewer than 8 bits cannot be imported; expected those they were made of");
  }

  //===-- tensors
  //-----------------------------------------------------------------------------------------------------===//

  TensorView tensor(const std::string &name, const std::vector<int64_t> &expected) {
    const TensorView *found = find(name);
    if (!found)
      throw Error(file + ": '" + name + "' " + textOf(expected) + " is missing");
    if (found->shape != expected)
      fail(name, "has shape " + textOf(found->shape) + "; expected " + textOf(expected));
    return *found;
  }

  TensorView vector(const std::string &name, int64_t n) {
    TensorView found = tensor(name, {n});
    if (found.type != "F32" && found.type != "F16" && found.type != "BF16")
      fail(name, "has type " + found.type + "; expected F32, F16 or BF16");
    return found;
  }

  // Dequantizes a matrix if necessary: there is a scale by which each row was multiplied, or one for all rows. The
  // result is kept for each variable, so that tied matrices stay tied.
  TensorView matrix(const std::string &name, int64_t out, int64_t in) {
    const TensorView stored = tensor(name, {out, in});
    if (stored.type == "F32" || stored.type == "F16" || stored.type == "BF16")
      return stored;
    if (stored.type != "I8" && stored.type != "I16")
      fail(name, "has type " + stored.type + "; expected F32, F16, BF16, or I8 or I16 with scales");
    const TensorView *scales = find(name + "_scale");
    constexpr float oldScale = 1000; // of I16, before such weights had scales of their own
    std::vector<float> scale = {oldScale};
    if (scales) {
      if (scales->type != "F32" || (!isScalar(*scales) && scales->shape != std::vector<int64_t>{out}))
        fail(name + "_scale",
             "has shape " + textOf(scales->shape) + " of " + scales->type + "; expected one F32, or " + textOf({out}));
      scale = floatsOf(*scales);
    } else if (stored.type == "I8") {
      throw Error(file + ": '" + name + "_scale' is missing, which '" + name + "' was multiplied by");
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

  // Adds a linear step whose weights are rows of a variable: it is number `part` of the `parts` that the variable
  // holds.
  void addLinear(const std::string &ours, const std::string &scope, int64_t part, int64_t parts, int64_t out,
                 int64_t in, bool bias) {
    addAs(weights, ours + ".weight", rowsOf(matrix(scope + "/weight", out * parts, in), part * out, out));
    if (!bias)
      return;
    if (has(scope + "/bias"))
      addAs(weights, ours + ".bias", rowsOf(vector(scope + "/bias", out * parts), part * out, out));
    else
      addFloats(weights, ours + ".bias", {out}, std::vector<float>(static_cast<size_t>(out)));
  }

  void addNorm(const std::string &ours, const std::string &scope, int64_t d, bool bias = true) {
    addAs(weights, ours + ".weight", vector(scope + "/gamma", d));
    if (bias)
      addAs(weights, ours + ".bias", vector(scope + "/beta", d));
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
      const nlohmann::json json = parseJson(readFile(from), from);
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
    const auto id = [&](const char *key, const char *otherwise) {
      const std::string name = tokenName(key, otherwise);
      const int32_t found = findToken(tokens[1], name);
      if (found < 0)
        throw Error(listFile[1] + ": has no token " + name + ", which is the model's " + key);
      return found;
    };
    ids.eos = id("eos_token", "</s>");
    ids.unk = id("unk_token", "<unk>");
    ids.bos = findToken(tokens[1], tokenName("bos_token", "<s>"));
    const TensorView *zero = find("decoder/start_from_zero_embedding");
    zeroStart = zero && isScalar(*zero) && scalarOf(*zero) != 0;
    start = ids.eos;
    if (zeroStart)
      return;
    const bool targetBos = !has("with_target_bos") || scalarOf(*find("with_target_bos")) != 0;
    const bool chosen = config ? config->has("decoder_start_token") : !has("user_decoder_start_tokens");
    if (chosen) {
      start = config ? id("decoder_start_token", "<s>")
                     : id(targetBos ? "bos_token" : "eos_token", targetBos ? "<s>" : "</s>");
      if (!given.targetLanguage.empty() && (language = languageToken(1, given.targetLanguage)) < 0)
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
      std::string scope = std::string(names[i]) + "/embeddings_0/weight";
      if (!has(scope))
        scope = std::string(names[i]) + "/embeddings/weight";
      const TensorView *table = find(scope);
      if (!table)
        throw Error(file + ": '" + scope + "' is missing");
      if (table->shape.size() != 2 || table->shape[0] < 1 || table->shape[1] < 1)
        fail(scope, "has shape " + textOf(table->shape) + "; expected tokens by features");
      if (table->shape[0] > mostVocab || table->shape[1] > mostFeatures)
        fail(scope, "has shape " + textOf(table->shape) + "; expected at most " +
                        textOf(std::vector<int64_t>{mostVocab, mostFeatures}));
      tableName[i] = scope;
      vocab[i] = table->shape[0];
      if (static_cast<int64_t>(tokens[i].size()) > vocab[i])
        throw Error(listFile[i] + ": has " + std::to_string(tokens[i].size()) + " tokens, but '" + scope + "' of " +
                    file + " has " + std::to_string(vocab[i]) + " rows");
    }
    d = model.variables.at(tableName[0]).shape[1];
    if (model.variables.at(tableName[1]).shape[1] != d)
      fail(tableName[1], "has " + std::to_string(model.variables.at(tableName[1]).shape[1]) + " features and '" +
                             tableName[0] + "' " + std::to_string(d) + "; expected the same number");
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

  EmbeddingTensors addTables(const std::string &prefix) {
    const std::string own[2] = {prefix + "encoder.embed_tokens.weight", prefix + "decoder.embed_tokens.weight"};
    const char *const tables[2] = {model.variables.at(tableName[0]).bytes.data(),
                                   model.variables.at(tableName[1]).bytes.data()};
    const std::string output = "decoder/projection/weight";
    EmbeddingTensors tied = {own[0], own[1], "lm_head.weight"};
    addTable(weights, own[0], matrix(tableName[0], vocab[0], d), rows[0]);
    if (tables[0] == tables[1])
      tied.decoder = own[0];
    else
      addTable(weights, own[1], matrix(tableName[1], vocab[1], d), rows[1]);
    const TensorView projection = tensor(output, {vocab[1], d});
    if (projection.bytes.data() == tables[1])
      tied.output = tied.decoder;
    else if (projection.bytes.data() == tables[0])
      tied.output = tied.encoder;
    else
      addTable(weights, tied.output, matrix(output, vocab[1], d), rows[1]);
    for (const std::string &name : {output, tableName[1]})
      find(name + "_scale"); // marks it as used, since a tied table is not read again
    return tied;
  }

  //===-- models
  //------------------------------------------------------------------------------------------------------===//

  void readLayers() {
    for (const int i : {0, 1}) {
      const std::string stack = names[i];
      const auto there = [&](int64_t layer) {
        const auto next = model.variables.lower_bound(stack + "/layer_" + std::to_string(layer) + "/");
        return next != model.variables.end() &&
               next->first.starts_with(stack + "/layer_" + std::to_string(layer) + "/");
      };
      while (layers[i] < mostLayers && there(layers[i]))
        ++layers[i];
      if (layers[i] == 0)
        throw Error(file + ": has no '" + stack + "/layer_0'; expected an encoder and a decoder of one layer or more");
      const std::string inner = stack + "/layer_0/ffn/linear_0/weight";
      const TensorView *first = find(inner);
      if (!first)
        throw Error(file + ": '" + inner + "' is missing");
      if (first->shape.size() != 2 || first->shape[1] != d || first->shape[0] < 1)
        fail(inner, "has shape " + textOf(first->shape) + "; expected features by " + std::to_string(d));
      ffn[i] = first->shape[0];
      const double defaultHeads = model.specification == "TransformerBig" ? 16 : 8;
      const double found = option(stack, "num_heads", defaultHeads);
      if (!(found >= 1 && found <= static_cast<double>(mostFeatures)))
        fail(stack + "/num_heads", "is " + std::to_string(found) + "; expected a whole number from 1");
      heads[i] = static_cast<int64_t>(found);
    }
    for (const char *name : {"alibi", "sliding_window", "multi_query_attention"})
      for (const char *stack : names)
        if (option(stack, name, 0) != 0)
          fail(std::string(stack) + "/" + name, "cannot be imported; no step computes it so");
    for (const char *name :
         {"alibi_use_positive_positions", "scale_alibi", "alignment_layer", "alignment_heads", "embeddings_merge"})
      for (const char *stack : names)
        option(stack, name, 0); // marks it as used: it belongs to an absent feature or does not change translations
  }

  std::string activation() {
    static const char *const known[] = {"relu", "gelu_new", "swish", "gelu", nullptr, "tanh"};
    const double code = both("activation", 0);
    if (!(code >= 0 && code < 6) || !known[static_cast<int>(code)])
      fail("encoder/activation", "is " + std::to_string(static_cast<int64_t>(code)) +
                                     "; expected 0 (ReLU), 1 (GELU by tanh), 2 (Swish), 3 (GELU) or 5 (tanh)");
    return known[static_cast<int>(code)];
  }

  // The factor of a stack's embeddings.
  double scaleOf(const std::string &stack) {
    const TensorView *scale = find(stack + "/scale_embeddings");
    if (!scale)
      for (const char *old : {"/embeddings_0/multiply_by_sqrt_depth", "/embeddings/multiply_by_sqrt_depth"})
        if (const TensorView *found = find(stack + old))
          scale = found;
    const double root = std::sqrt(static_cast<double>(d));
    if (!scale)
      return root;
    if (!isScalar(*scale))
      fail(scale->name, "has shape " + textOf(scale->shape) + "; expected one number");
    const double value = scalarOf(*scale);
    return scale->type == "I8" ? (value != 0 ? root : 1) : value;
  }

  void setScale(ForeignModel &result, const std::string &stack, double scale) const {
    Json &embedding = result.description[stack]["input"][0];
    embedding.erase("scale");
    const double root = std::sqrt(static_cast<double>(d));
    if (std::abs(scale - root) <= 1e-3 * root) // even if rounded to F16
      embedding["scale"] = "sqrt_dim";
    else if (scale != 1)
      embedding["scale"] = scale;
  }

  // The step for positions. A table of sinusoids becomes a computed table, so that it is not a parameter that training
  // changes. Sets the number of positions.
  Json positions() {
    const TensorView *tables[2] = {find("encoder/position_encodings/encodings"),
                                   find("decoder/position_encodings/encodings")};
    if (!tables[0] != !tables[1])
      fail(std::string(names[!tables[0]]) + "/position_encodings/encodings",
           "is of one stack alone; expected both or none");
    if (d % 2 || d < 4) {
      if (!tables[0])
        fail(tableName[0],
             "has " + std::to_string(d) + " features; positions that are computed need an even number, at least 4");
    } else if (!tables[0]) {
      return sinusoidalPositions(d, 1); // as CTranslate2 computes them
    }
    for (const TensorView *table : tables) {
      if (table->shape.size() != 2 || table->shape[1] != d || table->shape[0] < 1 || table->shape[0] > maxPositions)
        fail(table->name, "has shape " + textOf(table->shape) + "; expected positions by " + std::to_string(d));
      vectorType(*table);
    }
    maxLength = std::min(tables[0]->shape[0], tables[1]->shape[0]);
    for (const int64_t offset : {0, 1, 2})
      for (const bool slow : {false, true})
        if (d % 2 == 0 && d >= 4 && isSines(*tables[0], offset, slow) && isSines(*tables[1], offset, slow)) {
          Json step = sinusoidalPositions(d, offset);
          if (!slow)
            step.erase("exponent_multiplier");
          return step;
        }
    for (const int i : {0, 1})
      addAs(weights, std::string("model.") + names[i] + ".embed_positions.weight", rowsOf(*tables[i], 0, maxLength));
    return learnedPositions();
  }

  void vectorType(const TensorView &variable) const {
    if (variable.type != "F32" && variable.type != "F16" && variable.type != "BF16")
      fail(variable.name, "has type " + variable.type + "; expected F32, F16 or BF16");
  }

  // Whether a table holds sines and then cosines of position / 10000^(i / n), where n is d/2, or d/2 - 1 if `slow`.
  bool isSines(const TensorView &table, int64_t offset, bool slow) const {
    const std::vector<float> numbers = floatsOf(table);
    const int64_t half = d / 2;
    const double tolerance = table.type == "F32"   ? 1e-3
                             : table.type == "F16" ? 2e-3
                                                   : 8e-3; // of a table computed in F32
    for (int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(10000., -static_cast<double>(i) / static_cast<double>(slow ? half - 1 : half));
      for (int64_t p = 0; p < table.shape[0]; ++p) {
        const double angle = static_cast<double>(p + offset) * frequency;
        const size_t at = static_cast<size_t>(p * d + i);
        if (std::abs(numbers[at] - std::sin(angle)) > tolerance ||
            std::abs(numbers[at + static_cast<size_t>(half)] - std::cos(angle)) > tolerance)
          return false;
      }
    }
    return true;
  }

  // Fails if a variable was not read: the model would use it, but the imported steps would not.
  void checkAllUsed() const {
    static const std::set<std::string> told = {"unk_token",
                                               "bos_token",
                                               "eos_token",
                                               "with_source_bos",
                                               "with_source_eos",
                                               "with_target_bos",
                                               "user_decoder_start_tokens"};
    for (const auto &[name, variable] : model.variables)
      if (!used.contains(name) && !told.contains(name))
        fail(name, textOf(variable.shape) +
                       " cannot be imported: no step computes with it; expected an encoder and a decoder as in "
                       "Marian, BART or M2M100");
  }

  ForeignModel readStacks() {
    readTable();
    readLayers();
    const bool preNorm = both("pre_norm", 1) != 0, embeddingNorm = has("encoder/layernorm_embedding/gamma"),
               finalNorm = has("encoder/layer_norm/gamma");
    if (!preNorm && finalNorm)
      fail("encoder/layer_norm/gamma", "ends a stack whose layers end with norms; expected one or the other");
    const std::string function = activation();
    const Json position = positions();
    const double scales[2] = {scaleOf("encoder"), scaleOf("decoder")};
    for (const int i : {0, 1})
      addStack(i, embeddingNorm, finalNorm);
    const EmbeddingTensors tables = addTables("model.");
    const bool bias = has("decoder/projection/bias") || rows[1] > vocab[1];
    if (bias) {
      const std::vector<float> none(static_cast<size_t>(vocab[1]));
      const std::string zeros = bytesOf(none);
      const TensorView zero{"", "F32", {vocab[1]}, zeros};
      const TensorView own = has("decoder/projection/bias") ? vector("decoder/projection/bias", vocab[1]) : zero;
      addLogitsBias(weights, &own, rows[1]);
    }
    checkAllUsed();
    StacksForm form;
    form.preNorm = preNorm;
    form.embeddingNorm = embeddingNorm;
    form.logitsBias = bias;
    form.unk = ids.unk;
    form.bos = -1;
    for (const int i : {0, 1})
      if (d % heads[i])
        fail(std::string(names[i]) + "/num_heads",
             "is " + std::to_string(heads[i]) + ", which does not divide " + std::to_string(d));
    Json json = {{"vocab_size", rows[0]},
                 {"d_model", d},
                 {"encoder_layers", layers[0]},
                 {"decoder_layers", layers[1]},
                 {"encoder_attention_heads", heads[0]},
                 {"decoder_attention_heads", heads[1]},
                 {"encoder_ffn_dim", ffn[0]},
                 {"decoder_ffn_dim", ffn[1]},
                 {"max_position_embeddings", maxLength},
                 {"activation_function", function},
                 {"pad_token_id", ids.pad},
                 {"decoder_start_token_id", start},
                 {"eos_token_id", ids.eos}};
    if (ids.bos >= 0)
      json["bos_token_id"] = ids.bos;
    const Config made(file, json);
    Stacks stacks(made, form);
    stacks.setTargetVocab(rows[1]);
    ForeignModel result = stacks.build(weights, position, tables);
    if (preNorm && !finalNorm)
      leaveOutFinalNorms(result);
    for (const int i : {0, 1})
      setScale(result, names[i], scales[i]);
    return result;
  }

  void addStack(int which, bool embeddingNorm, bool finalNorm) {
    const std::string stack = names[which], ours = "model." + stack + ".";
    if (embeddingNorm)
      addNorm(ours + "layernorm_embedding", stack + "/layernorm_embedding", d);
    for (int64_t i = 0; i < layers[which]; ++i) {
      const std::string layer = ours + "layers." + std::to_string(i) + ".",
                        scope = stack + "/layer_" + std::to_string(i) + "/";
      const std::string self = layer + "self_attn", cross = layer + "encoder_attn";
      addSelf(self + ".", "_proj", "out", scope + "self_attention", d, /*bias=*/true);
      addNorm(self + "_layer_norm", scope + "self_attention/layer_norm", d);
      if (which) {
        addCross(cross + ".", "_proj", "out", scope + "attention", d, true);
        addNorm(cross + "_layer_norm", scope + "attention/layer_norm", d);
      }
      addLinear(layer + "fc1", scope + "ffn/linear_0", 0, 1, ffn[which], d, true);
      addLinear(layer + "fc2", scope + "ffn/linear_1", 0, 1, d, ffn[which], true);
      addNorm(layer + "final_layer_norm", scope + "ffn/layer_norm", d);
    }
    if (finalNorm)
      addNorm(ours + "layer_norm", stack + "/layer_norm", d);
  }

  // Adds a self-attention, whose queries, keys and values come from one product. `n` is the features of all heads.
  void addSelf(const std::string &ours, const std::string &end, const std::string &out, const std::string &scope,
               int64_t n, bool bias) {
    const char *const parts[] = {"q", "k", "v"};
    for (int64_t i = 0; i < 3; ++i)
      addLinear(ours + parts[i] + end, scope + "/linear_0", i, 3, n, d, bias);
    addLinear(ours + out + end, scope + "/linear_1", 0, 1, d, n, bias);
  }
  void addCross(const std::string &ours, const std::string &end, const std::string &out, const std::string &scope,
                int64_t n, bool bias) {
    addLinear(ours + "q" + end, scope + "/linear_0", 0, 1, n, d, bias);
    addLinear(ours + "k" + end, scope + "/linear_1", 0, 2, n, d, bias);
    addLinear(ours + "v" + end, scope + "/linear_1", 1, 2, n, d, bias);
    addLinear(ours + out + end, scope + "/linear_2", 0, 1, d, n, bias);
  }

  bool isT5() const { return has("encoder/layer_0/self_attention/relative_attention_bias"); }

  // Its kin too: RMS norms, no biases of products, scores that are not divided, and biases of them by distance.
  ForeignModel readT5() {
    readTable();
    readLayers();
    if (both("pre_norm", 1) == 0)
      fail("encoder/pre_norm", "is 0, but biases by distance are those of T5, whose norms come first; expected 1");
    if (heads[0] != heads[1] || ffn[0] != ffn[1])
      fail("decoder/num_heads",
           "or 'decoder/layer_0/ffn/linear_0/weight' is of another size than in the encoder; expected the same");
    for (const char *stack : names)
      if (scaleOf(stack) != 1)
        fail(std::string(stack) + "/scale_embeddings", "is not 1, as it is in T5");
    const bool gated = has("encoder/layer_0/ffn/linear_0_noact/weight");
    const std::string first = "encoder/layer_0/self_attention/", inner = first + "linear_1/weight",
                      table = first + "relative_attention_bias";
    const TensorView *output = find(inner), *biases = find(table);
    if (!output || output->shape.size() != 2 || output->shape[1] % heads[0])
      fail(inner, "is missing, or not as many heads wide as 'encoder/num_heads' says");
    const int64_t n = output->shape[1];
    if (biases->shape.size() != 2 || biases->shape[1] != heads[0])
      fail(table,
           "has shape " + textOf(biases->shape) + "; expected buckets by " + std::to_string(heads[0]) + " heads");
    const int64_t buckets = biases->shape[0];
    const double distance = attribute(first + "relative_attention_max_distance", 128);
    bool own = false;
    for (const int i : {0, 1})
      for (int64_t layer = 0; layer < layers[i]; ++layer)
        own |= layer > 0 && distanceBias(i, layer).bytes.data() != distanceBias(i, 0).bytes.data();
    double scale = 1;
    if (const TensorView *found = find("decoder/scale_outputs"))
      scale = scalarOf(*found);
    const double expected = 1 / std::sqrt(static_cast<double>(d));
    if (scale != 1 && std::abs(scale - expected) > 1e-3 * expected)
      fail("decoder/scale_outputs", "is " + std::to_string(scale) + "; expected 1 or " + std::to_string(expected));
    const std::string function = activation();
    for (const int i : {0, 1})
      addT5Stack(i, n, buckets, own, gated, distance);
    addTables("");
    checkAllUsed();
    const Config made(file, {{"model_type", own ? "umt5" : "t5"},
                             {"vocab_size", rows[0]},
                             {"d_model", d},
                             {"num_layers", layers[0]},
                             {"num_decoder_layers", layers[1]},
                             {"num_heads", heads[0]},
                             {"d_kv", n / heads[0]},
                             {"d_ff", ffn[0]},
                             {"feed_forward_proj", (gated ? "gated-" : "") + function},
                             {"relative_attention_num_buckets", buckets},
                             {"relative_attention_max_distance", static_cast<int64_t>(distance)},
                             {"scale_decoder_outputs", scale != 1},
                             {"pad_token_id", ids.pad},
                             {"decoder_start_token_id", start},
                             {"eos_token_id", ids.eos}});
    return xfc::readT5(made, weights);
  }

  double attribute(const std::string &name, double otherwise) {
    const TensorView *found = find(name);
    if (found && !isScalar(*found))
      fail(name, "has shape " + textOf(found->shape) + "; expected one number");
    return found ? scalarOf(*found) : otherwise;
  }

  const TensorView &distanceBias(int which, int64_t layer) {
    const std::string name =
        std::string(names[which]) + "/layer_" + std::to_string(layer) + "/self_attention/relative_attention_bias";
    const TensorView *found = find(name);
    if (!found)
      throw Error(file + ": '" + name + "' is missing");
    return *found;
  }

  void addT5Stack(int which, int64_t n, int64_t buckets, bool own, bool gated, double distance) {
    const std::string stack = names[which];
    for (int64_t i = 0; i < layers[which]; ++i) {
      const std::string block = stack + ".block." + std::to_string(i) + ".layer.",
                        scope = stack + "/layer_" + std::to_string(i) + "/";
      for (const char *attention : {"self_attention", "attention"})
        if (attribute(scope + attention + "/queries_scale", 1) != 1)
          fail(scope + attention + "/queries_scale", "is not 1, as it is in T5");
      if (attribute(scope + "self_attention/relative_attention_max_distance", distance) != distance)
        fail(scope + "self_attention/relative_attention_max_distance",
             "is another than in the first layer; expected the same in all");
      addSelf(block + "0.SelfAttention.", "", "o", scope + "self_attention", n, /*bias=*/false);
      if (i == 0 || own) {
        const TensorView &table = distanceBias(which, i);
        if (table.shape != std::vector<int64_t>{buckets, heads[0]})
          fail(table.name, "has shape " + textOf(table.shape) + "; expected " + textOf({buckets, heads[0]}));
        vectorType(table);
        addAs(weights, block + "0.SelfAttention.relative_attention_bias.weight", table);
      }
      addNorm(block + "0.layer_norm", scope + "self_attention/layer_norm", d, false);
      if (which) {
        addCross(block + "1.EncDecAttention.", "", "o", scope + "attention", n, false);
        addNorm(block + "1.layer_norm", scope + "attention/layer_norm", d, false);
      }
      const std::string last = block + (which ? "2." : "1."), feedForward = last + "DenseReluDense.";
      addLinear(feedForward + (gated ? "wi_0" : "wi"), scope + "ffn/linear_0", 0, 1, ffn[which], d, false);
      if (gated)
        addLinear(feedForward + "wi_1", scope + "ffn/linear_0_noact", 0, 1, ffn[which], d, false);
      addLinear(feedForward + "wo", scope + "ffn/linear_1", 0, 1, d, ffn[which], false);
      addNorm(last + "layer_norm", scope + "ffn/layer_norm", d, false);
    }
    addNorm(stack + ".final_layer_norm", stack + "/layer_norm", d, false);
  }

  //===-- vocabularies
  //------------------------------------------------------------------------------------------------===//

  void readVocabularies() {
    // The token lists lack the padding token if readTable() added one.
    const std::string pieces[2] = {firstOf(given.from, {"source.spm", "sentencepiece.bpe.model", "spiece.model",
                                                        "sentencepiece.model", "spm.model", "source.spm.model"}),
                                   firstOf(given.from, {"target.spm", "sentencepiece.bpe.model", "spiece.model",
                                                        "sentencepiece.model", "spm.model", "target.spm.model"})};
    if (exists(given.from + "/tokenizer.json")) {
      vocabularies = vocabulariesOfFolder(given.from, "", given.sourceLanguage, given.targetLanguage);
      return;
    }
    std::string made[2];
    for (const int i : {0, 1}) {
      TokenList list{listFile[i], tokens[i], pieces[i], ids, {}};
      list.ids.eos = findToken(tokens[i], tokenName("eos_token", "</s>"));
      list.ids.unk = findToken(tokens[i], tokenName("unk_token", "<unk>"));
      list.ids.bos = findToken(tokens[i], tokenName("bos_token", "<s>"));
      if (list.ids.eos < 0 || list.ids.eos != ids.eos)
        throw Error(listFile[i] + ": has " + tokenName("eos_token", "</s>") + " at " + std::to_string(list.ids.eos) +
                    ", and the list of the target at " + std::to_string(ids.eos) + "; expected the same in both");
      list.tokens.resize(static_cast<size_t>(std::max<int64_t>(static_cast<int64_t>(list.tokens.size()), ids.pad + 1)));
      if (rows[i] > vocab[i])
        list.tokens[static_cast<size_t>(ids.pad)] = "<pad>";
      const std::string &language = i ? given.targetLanguage : given.sourceLanguage;
      if (!language.empty() && !(i && start == languageToken(1, language))) {
        const int32_t id = languageToken(i, language);
        if (id < 0)
          throw Error(listFile[i] + ": has no language " + language + "; give one of its tokens");
        list.prefix = {id};
      } else if (i == 0 && config && config->boolean("add_source_bos", false) && list.ids.bos >= 0) {
        list.prefix = {list.ids.bos};
      }
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
  bool zeroStart = false;
  FolderVocabularies vocabularies;
  int64_t d = 0, maxLength = 1024, vocab[2] = {}, rows[2] = {}, layers[2] = {}, heads[2] = {},
          ffn[2] = {}; // [1]: the decoder's
};

} // namespace

bool isCtranslate2(const std::string &path) { return exists(path + "/model.bin"); }

ForeignFiles readCtranslate2(const ForeignOptions &options) { return Ctranslate2(options).read(); }

} // namespace xfc
