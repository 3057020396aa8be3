// Imports Marian's files: what each key of their YAML does.
#include "Foreign/Foreign.h"
#include "bytes.h"
#include "runtime/folder.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "tokenizers/ReversedTokenizer.h"
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>

using namespace xfc;

namespace {

// A folder with a model of 4 features, one layer per stack, 7 tokens, and the files that Marian writes beside it.
class MarianFiles : public FolderTest {
protected:
  MarianFiles() {
    std::filesystem::create_directory(in("mt"));
    for (const std::string stack : {"encoder_l1_", "decoder_l1_"}) {
      addAttention(stack + "self");
      if (stack == "decoder_l1_")
        addAttention(stack + "context");
      add(stack + "ffn_W1", 4, 6);
      add(stack + "ffn_b1", 1, 6);
      add(stack + "ffn_W2", 6, 4);
      add(stack + "ffn_b2", 1, 4);
      addNorm(stack + "ffn_ffn");
    }
    add("Wemb", 7, 4);
    add("decoder_ff_logit_out_b", 1, 7);
  }

  void add(const std::string &name, int64_t rows, int64_t columns) {
    const std::string shape = "(" + std::to_string(rows) + ", " + std::to_string(columns) + ")";
    std::string numbers;
    for (int64_t i = 0; i < rows * columns; ++i)
      numbers += little(static_cast<float>(i) / 64);
    arrays.push_back(
        {name + ".npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n", numbers)});
  }
  void addNorm(const std::string &scope) {
    add(scope + "_ln_scale", 1, 4);
    add(scope + "_ln_bias", 1, 4);
  }
  void addAttention(const std::string &scope) {
    for (const std::string part : {"q", "k", "v", "o"}) {
      add(scope + "_W" + part, 4, 4);
      add(scope + "_b" + part, 1, 4);
    }
    addNorm(scope + "_Wo");
  }

  using Yaml = std::map<std::string, std::string>; // keys and values, as YAML
  static std::string yamlOf(const Yaml &yaml) {
    std::string text;
    for (const auto &[key, value] : yaml)
      text += key + ": " + value + "\n";
    return text;
  }

  // Writes the files, and imports them: the model and the notes, or the error.
  std::string outcome() {
    std::filesystem::remove_all(in("out"));
    const std::string text = yamlOf(model);
    std::vector<ZipMember> members = arrays;
    members.push_back(
        {"special:model.yml.npy",
         npy("{'descr': '|i1', 'fortran_order': False, 'shape': (" + std::to_string(text.size()) + ",), }\n", text)});
    writeFile(in("mt/model.npz"), zip(members));
    writeFile(in("mt/model.npz.yml"), yamlOf(training));
    writeFile(in("mt/decoder.yml"), yamlOf(decoder));
    try {
      const ForeignImport done = importForeign({in("mt"), in("out")});
      asked = done.asked;
      std::string told;
      for (const std::string &note : done.notes)
        told += note + "\n";
      return told + readFile(in("out/model.json"));
    } catch (const Error &error) {
      return error.what();
    }
  }
  // The same with a key changed.
  std::string outcomeOf(Yaml &yaml, const std::string &key, const std::string &value) {
    const Yaml before = yaml;
    yaml[key] = value;
    std::string found = outcome();
    yaml = before;
    return found;
  }

  std::vector<ZipMember> arrays;
  Yaml model = {{"type", "transformer"},
                {"dim-vocabs", "[7, 7]"},
                {"dim-emb", "4"},
                {"enc-depth", "1"},
                {"dec-depth", "1"},
                {"transformer-heads", "2"},
                {"transformer-dim-ffn", "6"},
                {"tied-embeddings-all", "true"}};
  Yaml training, decoder;
  std::vector<std::string> asked;
};

TEST_F(MarianFiles, EachKeyThatIsReadHasAnEffect) {
  writeFile(in("mt/vocab.yml"), "</s>: 0\n<unk>: 1\na: 2\nb: 3\nc: 4\nd: 5\ne: 6\n");
  writeFile(in("mt/other.yml"), "</s>: 1\n<unk>: 0\na: 2\nb: 3\nc: 4\nd: 5\ne: 6\n");
  const std::map<std::string, std::string> others = {{"type", "s2s"},
                                                     {"original-type", "s2s"},
                                                     {"transformer-decoder-autoreg", "rnn"},
                                                     {"transformer-attention-mask", "alibi"},
                                                     {"transformer-ffn-activation", "relu"},
                                                     {"transformer-ffn-depth", "3"},
                                                     {"transformer-decoder-ffn-depth", "3"},
                                                     {"lemma-dim-emb", "2"},
                                                     {"factors-combine", "concat"},
                                                     {"transformer-postprocess-emb", "nd"},
                                                     {"transformer-no-projection", "true"},
                                                     {"transformer-no-bias", "true"},
                                                     {"transformer-no-affine", "true"},
                                                     {"transformer-pool", "true"},
                                                     {"transformer-disable-position-embeddings", "true"},
                                                     {"ulr", "true"},
                                                     {"right-left", "true"},
                                                     {"input-types", "[class]"},
                                                     {"transformer-tied-layers", "[1]"},
                                                     {"transformer-preprocess", "n"},
                                                     {"transformer-postprocess", "da"},
                                                     {"transformer-postprocess-top", "n"},
                                                     {"dim-emb", "8"},
                                                     {"transformer-heads", "1"},
                                                     {"enc-depth", "2"},
                                                     {"dec-depth", "2"},
                                                     {"transformer-dim-ffn", "5"},
                                                     {"transformer-decoder-dim-ffn", "5"},
                                                     {"dim-vocabs", "[9, 9]"},
                                                     {"tied-embeddings-all", "false"},
                                                     {"tied-embeddings-src", "true"},
                                                     {"tied-embeddings", "true"},
                                                     {"output-omit-bias", "true"},
                                                     {"transformer-dropout", "0.25"},
                                                     {"transformer-dropout-attention", "0.25"},
                                                     {"transformer-dropout-ffn", "0.25"},
                                                     {"label-smoothing", "0.25"},
                                                     {"beam-size", "3"},
                                                     {"normalize", "0.5"},
                                                     {"allow-unk", "true"},
                                                     {"word-penalty", "0.5"},
                                                     {"models", "[a.npz, b.npz]"},
                                                     {"vocabs", "[other.yml, other.yml]"}};
  // Where other options leave a key nothing to say.
  const auto usualFor = [&](const std::string &key, const std::string &usual) {
    if (!key.starts_with("tied-embeddings") || key == "tied-embeddings-all")
      return usual;
    model["tied-embeddings-all"] = "false";
    model["tied-embeddings-src"] = key == "tied-embeddings" ? "true" : "false";
    return outcome();
  };
  const std::string usual = outcome();
  ASSERT_NE(usual.find("xfc-model/1"), std::string::npos) << usual;
  EXPECT_EQ(usual.find("not known"), std::string::npos) << usual;
  const std::vector<std::string> keys = asked;
  EXPECT_GT(keys.size(), 40u);
  const Yaml before = model;
  for (const std::string &of : keys) {
    const std::string key = of.substr(of.rfind(": ") + 2);
    const auto other = others.find(key);
    ASSERT_NE(other, others.end()) << of << " is read, but this test has no other value for it";
    Yaml &yaml = of.starts_with("decoder.yml") ? decoder : of.starts_with("model.npz.yml") ? training : model;
    const std::string compared = usualFor(key, usual);
    EXPECT_NE(outcomeOf(yaml, key, other->second), compared) << of << " is read, but changes nothing";
    model = before;
  }
}

// Both vocabularies give the tokens of a line in the opposite order; the weights are the same.
TEST_F(MarianFiles, FromRightToLeft) {
  writeFile(in("mt/vocab.yml"), "</s>: 0\n<unk>: 1\na: 2\nb: 3\nc: 4\nd: 5\ne: 6\n");
  outcome();
  const std::string usual = readFile(in("out/vocab.model")), weights = readFile(in("out/model.safetensors"));
  const std::string found = outcomeOf(model, "right-left", "true");
  EXPECT_NE(found.find("right-left: the model reads and writes lines from their end"), std::string::npos) << found;
  EXPECT_EQ(readFile(in("out/vocab.model")), reversedVocabulary(usual));
  EXPECT_NE(readFile(in("out/model.safetensors")), weights) << "which vocabulary they belong to";
}

TEST_F(MarianFiles, KeysThatNothingReadsAreTold) {
  const std::string usual = outcome();
  const auto tells = [&](Yaml &yaml, const std::string &key, const std::string &value) {
    std::string found = outcomeOf(yaml, key, value);
    if (found == usual)
      return false;
    const size_t at = std::min(found.find(": " + key + ": "), found.size()), begin = found.rfind('\n', at) + 1,
                 end = found.find(" is not known here and is ignored\n", at);
    EXPECT_EQ(found.find('\n', at), found.find('\n', end)) << found;
    EXPECT_EQ(found.erase(begin, found.find('\n', at) + 1 - begin), usual) << key;
    return true;
  };
  for (Yaml *yaml : {&model, &training, &decoder}) {
    EXPECT_TRUE(tells(*yaml, "novel", "1"));
    EXPECT_TRUE(tells(*yaml, "novel", "[1, 2]"));
    EXPECT_FALSE(tells(*yaml, "novel", "~"));
    EXPECT_FALSE(tells(*yaml, "novel", "[]"));
  }
  EXPECT_FALSE(tells(model, "enc-cell", "lstm"));
  EXPECT_FALSE(tells(model, "dec-cell", "lstm"));
  EXPECT_FALSE(tells(training, "enc-cell", "lstm"));
  EXPECT_FALSE(tells(training, "learn-rate", "1"));
  EXPECT_FALSE(tells(training, "dim-emb", "9")); // the model's own options count
  EXPECT_TRUE(tells(model, "learn-rate", "1"));
  EXPECT_FALSE(tells(training, "dropout-src", "0"));
  EXPECT_TRUE(tells(training, "dropout-src", "0.1"));
  EXPECT_FALSE(tells(decoder, "mini-batch", "16"));
  EXPECT_FALSE(tells(decoder, "max-length-factor", "3"));
  EXPECT_TRUE(tells(decoder, "max-length-factor", "2"));
  EXPECT_TRUE(tells(decoder, "shortlist", "[lex.bin, false]"));
  EXPECT_TRUE(tells(decoder, "enc-cell", "lstm"));
}

} // namespace
