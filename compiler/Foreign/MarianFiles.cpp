// Reads Marian's own files: an .npz of the weights with the model's options as YAML inside and, if they exist beside
// it, the settings of the decoder and the vocabularies.
#include "Kinds.h"
#include "MarianKeys.h"
#include "Npz.h"
#include "Rebuilt.h"
#include "TokenLists.h"
#include "Yaml.h"
#include "plan/Generation.h"
#include "support/Error.h"
#include "support/Files.h"
#include "support/Quoted.h"
#include "tokenizers/ReversedTokenizer.h"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

namespace fs = std::filesystem;

namespace xfc {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char *optionsArray = "special:model.yml";

// The archive at a path: the file itself, or in a folder model.npz or the only archive. Empty if there is none.
std::string archiveOf(const std::string &path) {
  if (!isFolder(path))
    return path;
  std::vector<std::string> found;
  for (const auto &entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".npz") && !name.ends_with(".optimizer.npz"))
      found.push_back(name);
  }
  std::sort(found.begin(), found.end());
  if (std::find(found.begin(), found.end(), "model.npz") != found.end())
    return path + "/model.npz";
  if (found.size() > 1)
    throw Error(path + ": holds several models: " + listed(found) + "; name the one to import");
  return found.empty() ? "" : path + "/" + found.front();
}

class Marian {
public:
  explicit Marian(const ForeignOptions &options)
      : given(options), file(archiveOf(options.from)), folder(folderOf(file)), npz(std::make_shared<Npz>(file)),
        options(readOptions()), training(readIfThere({file + ".yml"})),
        settings(readIfThere({file + ".decoder.yml", folder + "/decoder.yml"})), weights(file, npz) {}

  ForeignFiles read() {
    checkOptions();
    readSizes();
    readVocabularies();
    Json json = {{"vocab_size", rows},
                 {"d_model", d},
                 {"encoder_layers", layers[0]},
                 {"decoder_layers", layers[1]},
                 {"encoder_attention_heads", heads},
                 {"decoder_attention_heads", heads},
                 {"encoder_ffn_dim", ffn[0]},
                 {"decoder_ffn_dim", ffn[1]},
                 {"max_position_embeddings", form.maxLength},
                 {"activation_function", form.activation},
                 {"scale_embedding", !learned},
                 {"pad_token_id", rows - 1},
                 {"decoder_start_token_id", rows - 1},
                 {"eos_token_id", form.eos}};
    readTraining(json);
    addEmbeddings();
    for (const bool decoder : {false, true})
      addStack(decoder);
    checkAllUsed();
    const Config config(file, json);
    ForeignModel model =
        Stacks(config, form).build(weights, learned ? learnedPositions() : sinusoidalPositions(d, 0), embeddings);
    if (form.preNorm && !finalNorm)
      leaveOutFinalNorms(model);
    if (learned) {
      if (!model.description.contains("share"))
        model.description["share"] = Json::array();
      model.description["share"].push_back({"encoder.pos.weight", "decoder.pos.weight"});
    }
    for (const char *stack : stackNames)
      setNormEps(model.description[stack], 1e-6); // Marian's
    model.notes.insert(model.notes.end(), notes.begin(), notes.end());
    Json generation = generationOf(model.notes);
    tellUnknown(model.notes);
    return {options->name(),       std::move(weights),      std::move(model),
            std::move(generation), std::move(vocabularies), asked()};
  }

private:
  static std::string folderOf(const std::string &file) {
    const std::string parent = fs::path(file).parent_path().string();
    return parent.empty() ? "." : parent;
  }

  std::unique_ptr<Yaml> readOptions() const {
    if (const TensorView *inside = npz->find(optionsArray)) {
      if (inside->shape.size() != 1 || static_cast<size_t>(inside->shape[0]) > mostTextBytes)
        throw Error(file + ": " + inQuotes(optionsArray) + " has shape " + textOf(inside->shape) +
                    "; expected at most " + std::to_string(mostTextBytes) + " bytes of options");
      std::string_view text = npz->read(optionsArray).bytes;
      text = text.substr(0, text.find('\0')); // the text ends in a zero
      return std::make_unique<Yaml>(text, file + ": " + optionsArray);
    }
    std::optional<Yaml> beside = readIfThere({file + ".yml"});
    if (!beside)
      throw Error(file + ": has no array " + inQuotes(optionsArray) + ", and " + file +
                  ".yml does not exist; expected a model written by Marian, with its options");
    return std::make_unique<Yaml>(std::move(*beside));
  }

  // The first of the files that exists, if one does.
  static std::optional<Yaml> readIfThere(const std::vector<std::string> &files) {
    for (const std::string &beside : files)
      if (exists(beside))
        return Yaml(readFile(beside), beside);
    return std::nullopt;
  }

  // The options of a training include those of the model, which may be in the same file.
  void tellUnknown(std::vector<std::string> &to) const {
    std::set<std::string> known = harmlessInMarianModel();
    if (training) {
      known.insert(harmlessInMarianTraining().begin(), harmlessInMarianTraining().end());
      known.insert(options->asked().begin(), options->asked().end());
      known.insert(training->asked().begin(), training->asked().end());
      training->tellUnknown(known, neutralInMarianTraining(), to);
    }
    if (!training || options->name() != training->name())
      options->tellUnknown(harmlessInMarianModel(), {}, to);
    if (settings)
      settings->tellUnknown(harmlessInMarianDecoder(), neutralInMarianDecoder(), to);
  }

  std::vector<std::string> asked() const {
    std::vector<std::string> keys;
    const auto add = [&](const Yaml &yaml) {
      for (const std::string &key : yaml.asked())
        keys.push_back(fs::path(yaml.name()).filename().string() + ": " + key);
    };
    add(*options);
    if (training)
      add(*training);
    if (settings)
      add(*settings);
    return keys;
  }

  // Fails, with the name of the option, if its value is none of those that steps can compute.
  void only(const char *key, const std::string &otherwise, const std::vector<std::string> &known) const {
    const std::string value = options->string(key, otherwise);
    if (std::find(known.begin(), known.end(), value) != known.end())
      return;
    std::vector<std::string> shown;
    shown.reserve(known.size());
    for (const std::string &name : known)
      shown.push_back(inQuotes(name));
    options->fail(key, inQuotes(value) + " cannot be imported; expected " + listed(shown));
  }

  void checkOptions() {
    if (options->has("original-type"))
      only("original-type", "transformer", {"transformer"});
    only("type", "transformer", {"transformer"});
    only("transformer-decoder-autoreg", "self-attention", {"self-attention", "rnn"});
    form.recurrent = options->string("transformer-decoder-autoreg", "self-attention") == "rnn";
    if (form.recurrent) {
      only("dec-cell", "gru", {"ssru"});
      if (options->boolean("layer-normalization", false))
        options->fail("layer-normalization", "true cannot be imported with the decoder's cell; expected false");
      form.recurrentOutput = options->boolean("transformer-rnn-projection", false);
    }
    only("transformer-attention-mask", "default", {"default"});
    only("transformer-ffn-activation", "swish", {"swish", "relu"}); // Marian's gelu is x sigmoid(1.702 x)
    only("transformer-ffn-depth", "2", {"2"});
    only("transformer-decoder-ffn-depth", "0", {"0", "2"});
    only("lemma-dim-emb", "0", {"0"});
    only("factors-combine", "sum", {"sum"});
    only("transformer-postprocess-emb", "d", {"", "d", "n", "nd"});
    for (const char *key : {"transformer-no-projection", "transformer-no-bias", "transformer-no-affine",
                            "transformer-pool", "transformer-disable-position-embeddings", "ulr"})
      if (options->boolean(key, false))
        options->fail(key, "true cannot be imported; expected false");
    fromEnd = options->boolean("right-left", false);
    if (fromEnd)
      notes.push_back(options->name() + ": right-left: the model reads and writes lines from their end, and so do its "
                                        "vocabularies here");
    for (const std::string &type : options->strings("input-types"))
      if (type != "sequence")
        options->fail("input-types", inQuotes(type) + " cannot be imported; expected 'sequence'");
    if (!options->strings("transformer-tied-layers").empty())
      options->fail("transformer-tied-layers",
                    "layers that share their weights cannot be imported; expected an empty list");
    form.preNorm = !options->string("transformer-preprocess", "").empty();
    only("transformer-preprocess", "", {"", "n"});
    only("transformer-postprocess", "dan",
         form.preNorm ? std::vector<std::string>{"da", "a"} : std::vector<std::string>{"dan", "an"});
    only("transformer-postprocess-top", "",
         form.preNorm ? std::vector<std::string>{"", "n"} : std::vector<std::string>{""});
    finalNorm = options->string("transformer-postprocess-top", "") == "n";
    form.embeddingNorm = options->string("transformer-postprocess-emb", "d").find('n') != std::string::npos;
    form.activation = options->string("transformer-ffn-activation", "swish");
  }

  void readSizes() {
    d = options->integer("dim-emb", 4, mostFeatures, 512);
    heads = options->integer("transformer-heads", 1, mostFeatures, 8);
    if (d % 2)
      options->fail("dim-emb", std::to_string(d) + ": positions need an even number of features, for sine and cosine");
    if (d % heads)
      options->fail("transformer-heads", std::to_string(heads) + " does not divide dim-emb " + std::to_string(d));
    layers[0] = options->integer("enc-depth", 1, mostLayers, 6);
    layers[1] = options->integer("dec-depth", 1, mostLayers, 6);
    ffn[0] = options->integer("transformer-dim-ffn", 1, mostFeatures, 2048);
    ffn[1] = options->integer("transformer-decoder-dim-ffn", 0, mostFeatures, 0);
    if (ffn[1] == 0)
      ffn[1] = ffn[0];
    const std::vector<int64_t> sizes = options->integers("dim-vocabs", 1, mostVocab);
    if (sizes.empty() || sizes.size() > 2)
      options->fail("dim-vocabs", "expected the sizes of one vocabulary or two, found " + std::to_string(sizes.size()));
    vocab[0] = sizes.front();
    vocab[1] = sizes.back();
    const bool tiedAll = options->boolean("tied-embeddings-all", false);
    oneTable = tiedAll || options->boolean("tied-embeddings-src", false);
    tied = tiedAll || options->boolean("tied-embeddings", false);
    if (oneTable && vocab[0] != vocab[1])
      options->fail("dim-vocabs", std::to_string(vocab[0]) + " and " + std::to_string(vocab[1]) +
                                      " tokens, but their embeddings are tied; expected two equal numbers");
    rows = std::max(vocab[0], vocab[1]) + 1;
    if (const TensorView *table = npz->find("Wpos")) {
      learned = true;
      if (table->shape.size() != 2 || table->shape[0] < 1 || table->shape[0] > maxPositions)
        wrongShape(*table, {form.maxLength, d});
      form.maxLength = table->shape[0];
    }
  }

  [[noreturn]] void wrongShape(const TensorView &array, const std::vector<int64_t> &expected) const {
    throw Error(file + ": " + inQuotes(array.name) + " has shape " + textOf(array.shape) + ", but " + options->name() +
                " requires " + textOf(expected));
  }

  // Compares the shape and the type with what the model requires before it decompresses the array.
  TensorView array(const std::string &name, const std::vector<int64_t> &expected) {
    const TensorView *found = npz->find(name);
    if (!found)
      throw Error(file + ": " + inQuotes(name) + " " + textOf(expected) + " is missing but required by " +
                  options->name());
    if (found->shape != expected)
      wrongShape(*found, expected);
    if (found->type != "F32" && found->type != "F64" && found->type != "F16")
      throw Error(file + ": " + inQuotes(name) + " has type " + found->type + "; expected F32, F64 or F16");
    used.insert(name);
    return npz->read(name);
  }

  // Adds a vector, which Marian stores as [1, n].
  void addRow(const std::string &ours, const std::string &theirs, int64_t n) {
    TensorView row = array(theirs, {1, n});
    row.shape = {n};
    addAs(weights, ours, std::move(row));
  }

  // Adds a matrix, which Marian stores as [in, out].
  void addMatrix(const std::string &ours, const std::string &theirs, int64_t out, int64_t in) {
    addFloats(weights, ours, {out, in}, transposed(theirs, in, out));
  }
  // A matrix [in, out] as [out, in].
  std::vector<float> transposed(const std::string &name, int64_t rows, int64_t columns) {
    const std::vector<float> from = floatsOf(array(name, {rows, columns}));
    npz->release(name);
    const auto in = static_cast<size_t>(rows), out = static_cast<size_t>(columns);
    std::vector<float> to(from.size());
    for (size_t i = 0; i < in; ++i)
      for (size_t j = 0; j < out; ++j)
        to[j * in + i] = from[i * out + j];
    return to;
  }

  void addLinear(const std::string &ours, const std::string &scope, const std::string &suffix, int64_t out,
                 int64_t in) {
    addMatrix(ours + ".weight", scope + "_W" + suffix, out, in);
    addRow(ours + ".bias", scope + "_b" + suffix, out);
  }

  void addNorm(const std::string &ours, const std::string &scope, bool before) {
    const std::string suffix = before ? "_pre" : "";
    addRow(ours + ".weight", scope + "_ln_scale" + suffix, d);
    addRow(ours + ".bias", scope + "_ln_bias" + suffix, d);
  }

  void addEmbeddings() {
    const std::string own[2] = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"};
    if (oneTable) {
      embeddings = {"model.shared.weight", "model.shared.weight", ""};
      addTable(weights, embeddings.encoder, array("Wemb", {vocab[0], d}), rows);
    } else {
      embeddings = {own[0], own[1], ""};
      addTable(weights, own[0], array("encoder_Wemb", {vocab[0], d}), rows);
      addTable(weights, own[1], array("decoder_Wemb", {vocab[1], d}), rows);
    }
    const std::string output = "decoder_ff_logit_out";
    if (tied) {
      embeddings.output = embeddings.decoder;
    } else {
      embeddings.output = "lm_head.weight";
      if (npz->find(output + "_W")) {
        const std::vector<float> numbers = transposed(output + "_W", d, vocab[1]);
        const std::string bytes = bytesOf(numbers);
        addTable(weights, embeddings.output, {"", "F32", {vocab[1], d}, bytes}, rows);
      } else {
        addTable(weights, embeddings.output, array(output + "_Wt", {vocab[1], d}), rows);
      }
    }
    const bool biased = !options->boolean("output-omit-bias", false);
    const std::string zeros(static_cast<size_t>(vocab[1]) * sizeof(float), '\0');
    TensorView bias{"", "F32", {vocab[1]}, zeros};
    if (biased)
      bias = array(output + "_b", {1, vocab[1]});
    addLogitsBias(weights, &bias, rows);
  }

  // Marian's SSRU, whose W has no bias. Its two norms have different prefixes.
  void addRecurrence(const std::string &layer, const std::string &scope) {
    addMatrix(layer + "rnn.gate.weight", scope + "_Wf", d, d);
    addRow(layer + "rnn.gate.bias", scope + "_bf", d);
    addMatrix(layer + "rnn.value.weight", scope + "_W", d, d);
    if (form.recurrentOutput)
      addLinear(layer + "rnn.out", scope, "o", d, d);
    addNorm(layer + "rnn_layer_norm", form.preNorm ? scope : scope + "_ffn", form.preNorm);
  }

  void addStack(bool decoder) {
    const std::string stack = decoder ? "decoder" : "encoder", ours = "model." + stack + ".";
    if (learned && !decoder) // one table for both stacks
      addAs(weights, ours + "embed_positions.weight", array("Wpos", {form.maxLength, d}));
    if (form.embeddingNorm)
      addNorm(ours + "layernorm_embedding", stack + "_emb", /*before=*/true);
    for (int64_t i = 0; i < layers[decoder]; ++i) {
      const std::string layer = ours + "layers." + std::to_string(i) + ".",
                        scope = stack + "_l" + std::to_string(i + 1) + "_";
      const auto addAttention = [&](const std::string &name, const std::string &of) {
        for (const char *part : {"q", "k", "v", "o"})
          addLinear(layer + name + "." + (*part == 'o' ? "out" : part) + "_proj", scope + of, part, d, d);
        addNorm(layer + name + "_layer_norm", scope + of + "_Wo", form.preNorm);
      };
      if (decoder && form.recurrent)
        addRecurrence(layer, scope + "rnn");
      else
        addAttention("self_attn", "self");
      if (decoder)
        addAttention("encoder_attn", "context");
      addLinear(layer + "fc1", scope + "ffn", "1", ffn[decoder], d);
      addLinear(layer + "fc2", scope + "ffn", "2", d, ffn[decoder]);
      addNorm(layer + "final_layer_norm", scope + "ffn_ffn", form.preNorm);
    }
    if (finalNorm)
      addNorm(ours + "layer_norm", stack + "_top", /*before=*/false);
  }

  void checkAllUsed() const {
    for (const auto &[name, array] : npz->arrays())
      if (!used.contains(name) && !name.starts_with("special:") && name != "decoder_c_mt") // left by old versions
        throw Error(file + ": " + inQuotes(name) + " " + textOf(array.shape) + " is not part of the model that " +
                    options->name() + " describes; expected only the weights of that model");
  }

  // The options of training are not in the model but in a file beside it.
  void readTraining(Json &json) const {
    if (!training)
      return;
    const std::pair<const char *, const char *> rates[] = {{"dropout", "transformer-dropout"},
                                                           {"attention_dropout", "transformer-dropout-attention"},
                                                           {"activation_dropout", "transformer-dropout-ffn"}};
    for (auto [ours, theirs] : rates)
      json[ours] = training->number(theirs, 0, 0.999, 0);
    json["label_smoothing"] = training->number("label-smoothing", 0, 1, 0);
  }

  Json generationOf(std::vector<std::string> &to) const {
    Json json = {{"beam", 12}, {"length_penalty", 0.0}, {"length_penalty_form", "power"}, {"early_stopping", true}};
    bool unknown = false;
    if (settings) {
      json["beam"] = settings->integer("beam-size", 1, 65536, 12);
      const std::string normalize = settings->string("normalize", "0");
      json["length_penalty"] = normalize.empty() ? 1.0 : settings->number("normalize", 0, mostLengthPenalty, 0);
      unknown = settings->boolean("allow-unk", false);
      if (settings->number("word-penalty", -1e6, 1e6, 0) != 0)
        to.push_back(settings->name() + ": word-penalty: is not supported by the search and is ignored");
      if (const size_t models = settings->strings("models").size(); models > 1)
        to.push_back(settings->name() + ": models: are " + std::to_string(models) + ", of which only " + file +
                     " is imported");
    }
    if (!unknown)
      json["suppress"] = {form.unk};
    return json;
  }

  // The files of the two vocabularies: those that the decoder's settings name, or those with the usual names.
  std::vector<std::string> vocabularyFiles() const {
    std::vector<std::string> files;
    if (settings) {
      for (const std::string &name : settings->strings("vocabs"))
        if (const std::string beside = folder + "/" + fs::path(name).filename().string(); exists(beside))
          files.push_back(beside);
      if (files.size() == 2)
        return files;
    }
    for (const auto &names : {std::vector<std::string>{"vocab.src.spm", "vocab.src.yml", "source.vocab.yml"},
                              std::vector<std::string>{"vocab.trg.spm", "vocab.trg.yml", "target.vocab.yml"}})
      if (const std::string found = firstOf(folder, names); !found.empty())
        files.push_back(found);
    if (files.size() == 2)
      return files;
    const std::string shared = firstOf(folder, {"vocab.spm", "vocab.yml"});
    if (!shared.empty())
      return {shared, shared};
    std::vector<std::string> others;
    for (const auto &entry : fs::directory_iterator(folder))
      if (const std::string name = entry.path().filename().string();
          name.ends_with(".vocab.yml") || name.ends_with("vocab.spm"))
        others.push_back(folder + "/" + name);
    if (others.size() == 1)
      return {others.front(), others.front()};
    return {};
  }

  // The tokens of a vocabulary by id, and its SentencePiece model, which is the vocabulary itself or a file beside it.
  TokenList readVocabulary(const std::string &from, bool target) {
    TokenList result{from, {}, "", {}, {}, /*strip=*/false}; // Marian decodes by SentencePiece
    if (from.ends_with(".spm")) {
      result.pieces = from;
      const std::unique_ptr<Tokenizer> pieces = makeTokenizer(readFile(from, mostLargeBytes), from);
      for (int32_t id = 0; id < pieces->size(); ++id)
        result.tokens.push_back(pieces->piece(id));
    } else {
      const Yaml list(readFile(from, mostLargeBytes), from);
      for (const Yaml::Entry &entry : list.entries()) {
        const int64_t id = list.integer(entry.key, 0, vocab[target] - 1, 0);
        if (static_cast<size_t>(id) >= result.tokens.size())
          result.tokens.resize(static_cast<size_t>(id) + 1);
        if (!result.tokens[static_cast<size_t>(id)].empty())
          list.fail(entry.key, std::to_string(id) + " is also the id of " +
                                   inQuotes(result.tokens[static_cast<size_t>(id)]) + "; expected each id once");
        result.tokens[static_cast<size_t>(id)] = entry.key;
      }
      result.pieces = firstOf(folder, {target ? "target.spm" : "source.spm"});
    }
    if (static_cast<int64_t>(result.tokens.size()) > vocab[target])
      throw Error(from + ": has " + std::to_string(result.tokens.size()) + " tokens, but " + options->name() +
                  " allows only " + std::to_string(vocab[target]));
    if (static_cast<int64_t>(result.tokens.size()) < vocab[target])
      notes.push_back(from + ": has " + std::to_string(result.tokens.size()) + " tokens, but the model has " +
                      std::to_string(vocab[target]) + "; the others have no text");
    result.ids = {static_cast<int32_t>(rows - 1), findToken(result.tokens, "<unk>"), -1,
                  findToken(result.tokens, "</s>")};
    for (auto [id, token] : {std::pair{result.ids.unk, "<unk>"}, {result.ids.eos, "</s>"}})
      if (id < 0)
        throw Error(from + ": has no token " + token + "; expected a Marian vocabulary");
    result.frame.suffix = {result.ids.eos};
    result.tokens.resize(static_cast<size_t>(rows));
    result.tokens.back() = "<pad>";
    return result;
  }

  void readVocabularies() {
    if (!given.sourceLanguage.empty() || !given.targetLanguage.empty())
      throw Error(file + ": source lines name their language themselves (>>fr<<), if there are several; leave out "
                         "--source-language and --target-language");
    const std::vector<std::string> files = vocabularyFiles();
    if (files.empty())
      return;
    const TokenList source = readVocabulary(files.front(), false), target = readVocabulary(files.back(), true);
    if (source.ids.eos != target.ids.eos || source.ids.unk != target.ids.unk)
      throw Error(files.back() + ": </s> and <unk> have different ids from those in " + files.front() +
                  "; expected the same in both");
    form.eos = target.ids.eos;
    form.unk = target.ids.unk;
    for (auto [list, vocabulary] : {std::pair{&source, &vocabularies.source}, {&target, &vocabularies.target}})
      *vocabulary = fromEnd ? reversedVocabulary(vocabularyOf(*list)) : vocabularyOf(*list);
    if (vocabularies.target == vocabularies.source)
      vocabularies.target.clear();
  }

  const ForeignOptions &given;
  std::string file, folder;
  std::shared_ptr<Npz> npz;
  std::unique_ptr<Yaml> options;
  std::optional<Yaml> training, settings; // of the training and of the decoder, from files beside the model
  Weights weights;
  std::set<std::string> used;
  std::vector<std::string> notes;
  FolderVocabularies vocabularies;
  EmbeddingTensors embeddings;
  StacksForm form = {.logitsBias = true, .unk = 1, .bos = -1, .eos = 0};
  bool fromEnd = false, finalNorm = false, learned = false, oneTable = false, tied = false;
  int64_t d = 0, heads = 0, layers[2] = {}, ffn[2] = {}, vocab[2] = {}; // [1]: the decoder's
  // The rows of both tables: those of the larger vocabulary, and a row of zeros for the token that begins translations.
  int64_t rows = 0;
};

} // namespace

bool isMarian(const std::string &path) {
  std::error_code failure;
  if (fs::is_regular_file(path, failure))
    return path.ends_with(".npz");
  return fs::is_directory(path, failure) && !archiveOf(path).empty();
}

ForeignFiles readMarianFiles(const ForeignOptions &options) { return Marian(options).read(); }

} // namespace xfc
