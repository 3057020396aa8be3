// Tests the search through the engine, and its commands, on a model of three hand-written kernels that reads its
// sources and histories only through encoded rows, the cache and the key lists of the batch.
#include "app/Commands.h"
#include "decode/Alignment.h"
#include "decode/Choice.h"
#include "decode/Defaults.h"
#include "decode/Rescoring.h"
#include "decode/Score.h"
#include "decode/Search.h"
#include "decode/Translations.h"
#include "device/cpu/CpuDevice.h"
#include "engine/Safetensors.h"
#include "plan/Plan.h"
#include "plan/Serialization.h"
#include "support/CommandLine.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/LineReader.h"
#include <atomic>
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

using namespace xfc;

namespace {

using Ids = std::vector<int32_t>;
constexpr int vocabularySize = 6; // pad 0, unk 1, start 2, eos 3, and 4, 5

std::vector<float> nextLogProbabilities(const Ids &source, const Ids &read) {
  Ids words = source;
  words.push_back(-1);
  words.insert(words.end(), read.begin(), read.end());
  std::seed_seq seed(words.begin(), words.end());
  std::mt19937 random(seed);
  std::vector<float> row(vocabularySize);
  double sum = 0;
  for (float &x : row) {
    x = static_cast<float>(random() % 1000) / 250;
    sum += std::exp(x);
  }
  for (float &x : row)
    x -= static_cast<float>(std::log(sum));
  return row;
}

template <typename T> T *buffer(const xfc_call *call, int i) { return static_cast<T *>(call->buffers[i]); }

// Rows for which decode_candidates and decode_renormalized chose tokens.
std::atomic<int> chosenRows = 0, renormalizedRows = 0;

std::atomic<int64_t> encodedTogether = 0; // the most rows

// k holds the id, v twice the id: two column slices of one buffer.
void encodeKernel(const xfc_call *call, int64_t row, int64_t, void *) {
  int64_t most = encodedTogether;
  while (most < call->rows->rows && !encodedTogether.compare_exchange_weak(most, call->rows->rows)) {
  }
  int32_t id = buffer<int32_t>(call, 0)[row];
  buffer<float>(call, 1)[row * call->strides[1]] = static_cast<float>(id);
  buffer<float>(call, 2)[row * call->strides[2]] = static_cast<float>(2 * id);
}

void cacheKernel(const xfc_call *call, int64_t row, int64_t, void *) {
  buffer<float>(call, 1)[call->shape->slots[row] * call->strides[1]] =
      static_cast<float>(buffer<int32_t>(call, 0)[row]);
}

Ids visible(const xfc_shape *shape, int structure, int64_t row, const float *data, int64_t stride) {
  const xfc_keys &keys = shape->keys[structure];
  int32_t sequence = shape->sets[XFC_TARGET].sequence_of[row];
  Ids ids;
  for (int32_t i = 0; i < keys.limit[row]; ++i)
    ids.push_back(static_cast<int32_t>(data[keys.keys[keys.begin[sequence] + i] * stride]));
  return ids;
}

// Operands: source k, source v, cache; result: log-probabilities.
void predictKernel(const xfc_call *call, int64_t row, int64_t, void *) {
  Ids source = visible(call->shape, XFC_KEYS(XFC_TARGET_SOURCE, 0, 0), row, buffer<float>(call, 0), call->strides[0]);
  Ids twice = visible(call->shape, XFC_KEYS(XFC_TARGET_SOURCE, 0, 0), row, buffer<float>(call, 1), call->strides[1]);
  for (size_t i = 0; i < source.size(); ++i)
    EXPECT_EQ(twice[i], 2 * source[i]);
  Ids read = visible(call->shape, XFC_KEYS(XFC_TARGET_CACHE, 0, 1), row, buffer<float>(call, 2), call->strides[2]);
  EXPECT_EQ(static_cast<int32_t>(read.size()), call->rows->positions[row] + 1);
  std::vector<float> result = nextLogProbabilities(source, read);
  std::copy(result.begin(), result.end(), buffer<float>(call, 3) + row * call->strides[3]);
}

// Operands: source k, source v, cache, wanted; results: the two best tokens, their log-probabilities, and that of the
// wanted token.
void chooseKernel(const xfc_call *call, int64_t row, int64_t, void *scratch) {
  std::vector<float> all(vocabularySize * (row + 1));
  void *buffers[] = {call->buffers[0], call->buffers[1], call->buffers[2], all.data()};
  const int64_t strides[] = {call->strides[0], call->strides[1], call->strides[2], vocabularySize};
  xfc_call predict = *call;
  predict.buffers = buffers;
  predict.strides = strides;
  predictKernel(&predict, row, -1, scratch);
  const float *logProbabilities = all.data() + row * vocabularySize;
  std::vector<int32_t> order = {1, 4, 5};
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logProbabilities[a] > logProbabilities[b]; });
  for (int c = 0; c < 2; ++c) {
    buffer<int32_t>(call, 4)[row * call->strides[4] + c] = order[c];
    buffer<float>(call, 5)[row * call->strides[5] + c] = logProbabilities[order[c]];
  }
  buffer<float>(call, 6)[row * call->strides[6]] = logProbabilities[buffer<int32_t>(call, 3)[row]];
  ++chosenRows;
}

// The same with log-probabilities among all tokens but pad, start and eos.
void renormalizeKernel(const xfc_call *call, int64_t row, int64_t, void *scratch) {
  chooseKernel(call, row, -1, scratch);
  --chosenRows;
  ++renormalizedRows;
  // Three tokens remain, but only the two best are candidates: the sum needs the whole row.
  Ids source = visible(call->shape, XFC_KEYS(XFC_TARGET_SOURCE, 0, 0), row, buffer<float>(call, 0), call->strides[0]);
  Ids read = visible(call->shape, XFC_KEYS(XFC_TARGET_CACHE, 0, 1), row, buffer<float>(call, 2), call->strides[2]);
  const std::vector<float> all = nextLogProbabilities(source, read);
  const float lse = std::log(std::exp(all[1]) + std::exp(all[4]) + std::exp(all[5]));
  for (int c = 0; c < 2; ++c)
    buffer<float>(call, 5)[row * call->strides[5] + c] -= lse;
  buffer<float>(call, 6)[row * call->strides[6]] -= lse;
}

// Teacher forcing: negative log-likelihood of the labels.
void scoreKernel(const xfc_call *call, int64_t row, int64_t, void *) {
  const xfc_shape *shape = call->shape;
  int32_t sequence = shape->sets[XFC_TARGET].sequence_of[row];
  auto ids = [&](const int32_t *data, const xfc_rows &rows, int64_t count) {
    return Ids(data + rows.offsets[sequence], data + rows.offsets[sequence] + count);
  };
  const xfc_rows &source = shape->sets[XFC_SOURCE], &target = shape->sets[XFC_TARGET];
  Ids read = ids(buffer<int32_t>(call, 1), target, target.positions[row] + 1);
  Ids from = ids(buffer<int32_t>(call, 0), source, source.offsets[sequence + 1] - source.offsets[sequence]);
  buffer<float>(call, 3)[row] = -nextLogProbabilities(from, read)[buffer<int32_t>(call, 2)[row]];
}

// Each of two heads h puts 0.5 + 0.25 (h = 0) or 0.25 (h = 1) of query j's probability on key j % count, and the rest
// on the next key.
void attentionKernel(const xfc_call *call, int64_t sequence, int64_t, void *) {
  int64_t queries = call->rows->offsets[sequence + 1] - call->rows->offsets[sequence],
          count = call->keys->count[sequence];
  float *block = buffer<float>(call, 0) + call->keys->pair_offsets[sequence] * 2;
  for (int64_t head = 0; head < 2; ++head)
    for (int64_t j = 0; j < queries; ++j)
      for (int64_t k = 0; k < count; ++k) {
        float main = head == 0 ? 0.75f : 0.5f;
        block[(head * queries + j) * count + k] = k == j % count ? main : k == (j + 1) % count ? 1 - main : 0;
      }
}

std::vector<uint8_t> handWrittenPlan(bool crossAttention) {
  Module module;
  module.model = "hand-written";
  module.sourceVocab = module.targetVocab = vocabularySize;
  module.hasDecoder = true;
  module.maxTargetLength = 9;
  Partition rows{Partition::Unit::Rows, 1, 1}, sequences{Partition::Unit::Sequences, 1, 1};
  module.kernels = {{"encode", rows, 0},         {"cache", rows, 0},  {"predict", rows, 0},    {"score", rows, 0},
                    {"attention", sequences, 0}, {"choose", rows, 0}, {"renormalize", rows, 0}};
  auto arena = [](int64_t index, int64_t offset = 0) { return Place{Place::Kind::Arena, index, offset}; };
  auto argument = [](int64_t index) { return Place{Place::Kind::Argument, index, 0}; };
  auto input = [](const char *name, int8_t set) { return Argument{name, Argument::Role::Input, DType::I32, set, {}}; };
  Size perSource, perTarget, perTargetScalar, perPair;
  perSource.rows[XFC_SOURCE] = 16;
  perTarget.rows[XFC_TARGET] = 32;
  perTargetScalar.rows[XFC_TARGET] = 4;
  int16_t cross = XFC_KEYS(XFC_TARGET_SOURCE, 0, 0);
  perPair.pairs[cross] = 8;

  Program encode;
  encode.name = "encode";
  encode.arguments = {input("source", XFC_SOURCE)};
  encode.outputs = {{"x.k", arena(0, 4), DType::F32, XFC_SOURCE, -1, {1}, 4},
                    {"x.v", arena(0, 8), DType::F32, XFC_SOURCE, -1, {1}, 4}};
  encode.buffers = {{perSource, 0, 1}};
  encode.steps = {{0, XFC_SOURCE, XFC_SOURCE, -1, {argument(0), arena(0, 4), arena(0, 8)}, {0, 4, 4}}};

  Program step;
  step.name = "decode_step";
  step.rowByRow = true;
  step.arguments = {input("target", XFC_TARGET),
                    {"x.k", Argument::Role::Input, DType::F32, XFC_SOURCE, {1}},
                    {"x.v", Argument::Role::Input, DType::F32, XFC_SOURCE, {1}},
                    {"y.k", Argument::Role::State, DType::F32, XFC_CACHE, {3}}};
  step.outputs = {{"log_probs", arena(0), DType::F32, XFC_TARGET, -1, {vocabularySize}, 8}};
  step.buffers = {{perTarget, 0, 2}};
  step.steps = {{1, XFC_TARGET, XFC_TARGET, -1, {argument(0), argument(3)}, {0, 3}},
                {2,
                 XFC_TARGET,
                 XFC_CACHE,
                 XFC_KEYS(XFC_TARGET_CACHE, 0, 1),
                 {argument(1), argument(2), argument(3), arena(0)},
                 {1, 1, 3, 8}}};

  // Two candidates: enough for beams of one and two.
  Program choose = step;
  choose.name = "decode_candidates";
  choose.arguments.insert(choose.arguments.begin() + 1, input("wanted", XFC_TARGET));
  choose.outputs = {{"tokens", arena(0), DType::I32, XFC_TARGET, -1, {2}, 8},
                    {"token_log_probs", arena(0, 8), DType::F32, XFC_TARGET, -1, {2}, 8},
                    {"wanted_log_prob", arena(0, 16), DType::F32, XFC_TARGET, -1, {}, 8}};
  choose.steps[0].buffers = {argument(0), argument(4)};
  choose.steps[1].kernel = 5;
  choose.steps[1].buffers = {argument(2), argument(3), argument(4), argument(1), arena(0), arena(0, 8), arena(0, 16)};
  choose.steps[1].strides = {1, 1, 3, 0, 8, 8, 8};
  Program renormalize = choose;
  renormalize.name = "decode_renormalized";
  renormalize.steps[1].kernel = 6;

  Program score;
  score.name = "score";
  score.arguments = {input("source", XFC_SOURCE),
                     input("target", XFC_TARGET),
                     input("labels", XFC_TARGET),
                     {"smoothing", Argument::Role::Scalar, DType::F32, -1, {}}};
  score.outputs = {{"nll", arena(0), DType::F32, XFC_TARGET, -1, {}, 1}};
  score.buffers = {{perTargetScalar, 0, 1}};
  score.steps = {{3, XFC_TARGET, XFC_TARGET, -1, {argument(0), argument(1), argument(2), arena(0)}, {0, 0, 0, 1}}};

  Program attention;
  attention.name = "forward_attention";
  attention.arguments = {input("source", XFC_SOURCE), input("target", XFC_TARGET)};
  attention.outputs = {{"attention.decoder.layers.0.cross_attn", arena(0), DType::F32, -1, cross, {2}, 0}};
  attention.buffers = {{perPair, 0, 1}};
  attention.steps = {{4, XFC_TARGET, XFC_SOURCE, cross, {arena(0)}, {0}}};

  module.programs = {encode, step, choose, renormalize, score};
  if (crossAttention)
    module.programs = {encode, step, choose, renormalize, score, attention};
  return serialize(module);
}

const std::vector<uint8_t> plan = handWrittenPlan(true), withoutAttention = handWrittenPlan(false);
constexpr xfc_kernel kernels[] = {encodeKernel,    cacheKernel,  predictKernel,    scoreKernel,
                                  attentionKernel, chooseKernel, renormalizeKernel};
const xfc_image image = {XFC_ABI_VERSION, 7, "any", "", kernels, plan.data(), plan.size()};
const xfc_image imageWithoutAttention = {XFC_ABI_VERSION,        7, "any", "", kernels, withoutAttention.data(),
                                         withoutAttention.size()};

class DecodeEngine : public testing::Test {
protected:
  std::unique_ptr<Engine> engine = std::make_unique<Engine>(cpuDevice(image), 2);
};

std::vector<Ids> someSources() {
  std::mt19937 random(1);
  std::vector<Ids> sources;
  for (int i = 0; i < 40; ++i) {
    Ids source(1 + random() % 7);
    for (int32_t &id : source)
      id = static_cast<int32_t>(random() % 2 + 4);
    source.push_back(3);
    sources.push_back(source);
  }
  return sources;
}

double logProbability(const Ids &source, const Ids &ids) {
  Ids read = {2};
  double sum = 0;
  for (size_t i = 0; i <= ids.size(); ++i) {
    sum += nextLogProbabilities(source, read)[i < ids.size() ? ids[i] : 3];
    if (i < ids.size())
      read.push_back(ids[i]);
  }
  return sum;
}

// The result of a command line run in a folder with the files source, target and weights.safetensors (the model has no
// parameters).
struct CommandResult {
  int status;
  std::string output, errors;
};
class DecodeCommands : public testing::Test {
protected:
  DecodeCommands() {
    makeFolder(folder);
    std::filesystem::current_path(folder);
    writeSafetensors("weights.safetensors", {});
    writeFile("source", "4 5 3\n\n5 3\n4 4 4 5 3\n");
  }
  ~DecodeCommands() override {
    std::filesystem::current_path(before);
    std::filesystem::remove_all(folder);
  }
  static CommandResult run(std::vector<std::string> words, const std::string &format = "ids") {
    CommandLine app("test", "test");
    addTranslate(app);
    addScore(app);
    words.insert(words.begin(), "test");
    words.insert(words.begin() + 2, {"--weights", "weights.safetensors", "--format", format, "--quiet"});
    std::vector<char *> arguments;
    for (std::string &word : words)
      arguments.push_back(word.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    int status = runCommandLine(app, static_cast<int>(arguments.size()), arguments.data());
    return {status, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
  }

  const std::filesystem::path before = std::filesystem::current_path();
  const std::string folder =
      testing::TempDir() + "xfc-decode-" + testing::UnitTest::GetInstance()->current_test_info()->name();
};

std::vector<std::string> split(const std::string &text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    parts.push_back(part);
  return parts;
}
Ids idsOf(const std::string &text) {
  Ids ids;
  std::istringstream stream(text);
  for (int32_t id; stream >> id;)
    ids.push_back(id);
  return ids;
}

} // namespace

extern "C" const xfc_image *const xfc_images[] = {&image, nullptr};
extern "C" const xfc_device_image *const xfc_device_images[] = {nullptr};

TEST_F(DecodeEngine, GreedyFollowsTheModel) {
  std::vector<Ids> sources = someSources();
  chosenRows = 0;
  auto found = search(*engine, sources, {.generation = {.beam = 1}, .batchTokens = 30});
  EXPECT_GT(chosenRows, 0) << "greedy search needs one candidate";
  for (size_t s = 0; s < sources.size(); ++s) {
    Ids read = {2};
    while (read.size() < 9) { // the model's maximum length
      auto row = nextLogProbabilities(sources[s], read);
      int32_t best = 1;
      for (int32_t token : {3, 4, 5})
        if (row[token] > row[best])
          best = token;
      if (best == 3)
        break;
      read.push_back(best);
    }
    ASSERT_EQ(found[s].size(), 1u);
    EXPECT_EQ(found[s][0].ids, Ids(read.begin() + 1, read.end())) << s;
    EXPECT_EQ(found[s][0].logProbability, logProbability(sources[s], found[s][0].ids));
  }
}

TEST_F(DecodeEngine, BatchesDoNotMatter) {
  std::vector<Ids> sources = someSources();
  for (SearchOptions options :
       {SearchOptions{.generation = {.beam = 1}}, SearchOptions{.generation = {.beam = 2}, .nBest = 2},
        SearchOptions{.generation = {.beam = 4}, .nBest = 4},
        SearchOptions{.generation = {.topK = 3}, .nBest = 3, .sample = true}}) {
    options.batchTokens = 10000;
    chosenRows = 0;
    auto together = search(*engine, sources, options);
    EXPECT_EQ(chosenRows > 0, !options.sample && options.generation.beam <= 2)
        << "candidates are enough for narrow beams only";
    options.batchTokens = 20;
    auto renewed = search(*engine, sources, options);
    options.batchSentences = 3;
    EXPECT_EQ(searchCounts(engine->module(), sources, options).sequences[XFC_SOURCE], 3);
    auto three = search(*engine, sources, options);
    options.batchSentences = 0;
    options.batchTokens = 1;
    size_t calls = 0;
    auto alone = search(*engine, sources, options, {}, {}, [&](size_t) { ++calls; });
    EXPECT_EQ(calls, sources.size());
    for (size_t s = 0; s < sources.size(); ++s) {
      ASSERT_EQ(together[s].size(), alone[s].size());
      for (size_t i = 0; i < alone[s].size(); ++i) {
        EXPECT_EQ(together[s][i].ids, alone[s][i].ids);
        EXPECT_EQ(together[s][i].score, alone[s][i].score);
        EXPECT_EQ(renewed[s][i].ids, alone[s][i].ids);
        EXPECT_EQ(renewed[s][i].score, alone[s][i].score);
        EXPECT_EQ(three[s][i].ids, alone[s][i].ids);
        EXPECT_EQ(three[s][i].score, alone[s][i].score);
        EXPECT_EQ(alone[s][i].logProbability, logProbability(sources[s], alone[s][i].ids));
      }
    }
  }
}

// Each source has 8 tokens, so 200 of them are more than the encoder takes at a time.
TEST_F(DecodeEngine, LargeBatchesAreEncodedInParts) {
  std::vector<Ids> sources;
  for (int s = 0; s < 200; ++s) {
    Ids source;
    for (int bit = 0; bit < 7; ++bit)
      source.push_back(4 + (s * 37 >> bit) % 2);
    source.push_back(3);
    sources.push_back(source);
  }
  SearchOptions options{.generation = {.beam = 2}};
  options.batchTokens = 10000;
  encodedTogether = 0;
  auto together = search(*engine, sources, options);
  EXPECT_EQ(encodedTogether, 512);
  options.batchTokens = 8;
  auto alone = search(*engine, sources, options);
  for (size_t s = 0; s < sources.size(); ++s) {
    EXPECT_EQ(together[s][0].ids, alone[s][0].ids);
    EXPECT_EQ(together[s][0].logProbability, logProbability(sources[s], together[s][0].ids));
  }
}

// Candidates and all log-probabilities give the same, each from its own program.
TEST_F(DecodeEngine, RenormalizedCandidatesAreEnough) {
  const std::vector<Ids> sources = someSources();
  for (int beam : {1, 2, 3}) {
    const Generation generation{.beam = beam, .minLength = 2, .renormalize = true};
    chosenRows = renormalizedRows = 0;
    const auto found = search(*engine, sources, {.generation = generation});
    EXPECT_EQ(chosenRows, 0);
    EXPECT_EQ(renormalizedRows > 0, beam < 3) << "there are two candidates";
    double gained = 0;
    for (size_t s = 0; s < sources.size(); ++s) {
      // The log-probability, step by step. A minimum length excludes eos, and the maximum length all others.
      Ids read = {2}, ids = found[s][0].ids;
      double sum = 0;
      for (size_t i = 0; i <= ids.size() && i < 8; ++i) {
        const std::vector<float> row = nextLogProbabilities(sources[s], read);
        const double left = std::exp(row[1]) + std::exp(row[4]) + std::exp(row[5]) + (i < 2 ? 0 : std::exp(row[3]));
        sum += row[i < ids.size() ? ids[i] : 3] - std::log(left);
        gained -= std::log(left);
        if (i < ids.size())
          read.push_back(ids[i]);
      }
      EXPECT_NEAR(found[s][0].logProbability, sum, 1e-5);
    }
    EXPECT_GT(gained, 1);
  }
}

TEST_F(DecodeEngine, PrefixesAndLengths) {
  std::vector<Ids> sources = someSources(), prefixes(sources.size());
  prefixes[3] = {5, 5, 1};
  auto found = search(*engine, sources, {.generation = {.beam = 2, .maxLength = 5, .minLength = 4}}, prefixes);
  for (size_t s = 0; s < sources.size(); ++s) {
    EXPECT_GE(found[s][0].ids.size(), 4u);
    EXPECT_LE(found[s][0].ids.size(), 5u);
  }
  EXPECT_EQ(Ids(found[3][0].ids.begin(), found[3][0].ids.begin() + 3), prefixes[3]);
  found = search(*engine, sources, {.generation = {.beam = 3, .maxLength = 6}, .ignoreEos = true});
  EXPECT_EQ(found[5][0].ids.size(), 6u);
}

TEST_F(DecodeEngine, WrongOptionsAreErrors) {
  std::vector<Ids> sources = someSources();
  EXPECT_THROW(search(*engine, sources, {.generation = {.beam = 0}}), Error);
  EXPECT_THROW(search(*engine, sources, {.generation = {.beam = 2}, .nBest = 3}), Error);
  EXPECT_THROW(search(*engine, sources, {.generation = {.temperature = 0}, .sample = true}), Error);
  EXPECT_THROW(search(*engine, sources, {.generation = {.topP = 1.5}, .sample = true}), Error);
  EXPECT_THROW(search(*engine, sources, {.generation = {.maxLength = 3, .minLength = 4}}), Error);
  EXPECT_THROW(search(*engine, sources, {.generation = {.suppress = {3}}}), Error);
  EXPECT_TRUE(search(*engine, {}, {}).empty());
}

TEST_F(DecodeEngine, ScoresAreSumsOverTheTargetAndEos) {
  std::vector<Ids> sources = someSources(), targets;
  for (size_t s = 0; s < sources.size(); ++s)
    targets.push_back(Ids(s % 6, static_cast<int32_t>(4 + s % 2)));
  auto together = score(*engine, sources, targets, 10000), alone = score(*engine, sources, targets, 1);
  EXPECT_EQ(together, alone);
  for (size_t s = 0; s < sources.size(); ++s)
    EXPECT_EQ(together[s], logProbability(sources[s], targets[s])) << s;
}

TEST_F(DecodeEngine, CrossAttentionIsAveragedOverHeads) {
  const Ids source = {4, 5, 4, 3}, target = {5, 5, 1, 4};
  CrossAttention attention = crossAttention(*engine, source, target);
  ASSERT_EQ(attention.targets, 5);
  ASSERT_EQ(attention.sources, 4);
  for (int64_t j = 0; j < 5; ++j)
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_EQ(attention.at(j, i), i == j % 4 ? 0.625 : i == (j + 1) % 4 ? 0.375 : 0) << j << " " << i;
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(hardAlignment(attention, 4, 4), (Pairs{{0, 0}, {1, 1}, {2, 2}, {3, 3}}));
  EXPECT_EQ(hardAlignment(attention, 4, 3), (Pairs{{0, 0}, {1, 1}, {2, 2}, {0, 3}})); // eos left out
  // Without eos, its row is missing, and nothing is read at the position of the last token.
  const CrossAttention cut = crossAttention(*engine, source, target, /*eos=*/false);
  ASSERT_EQ(cut.targets, 4);
  EXPECT_EQ(cut.weights, std::vector<double>(attention.weights.begin(), attention.weights.begin() + 16));
  EXPECT_EQ(crossAttention(*engine, source, {}, /*eos=*/false).targets, 0);
}

TEST(Details, WithoutCrossAttentionTheOptionIsNamed) {
  TranslationModel model{std::make_unique<Engine>(cpuDevice(imageWithoutAttention), 1), nullptr, nullptr, {}};
  const auto said = [&](const Details &details) -> std::string {
    SearchOptions options;
    options.details = details;
    try {
      requireDetails(model, options, Format::Text);
    } catch (const Error &error) {
      return error.what();
    }
    return "";
  };
  const std::string without = "model 'hand-written' has no cross-attention, which ";
  EXPECT_EQ(said({.tokenScores = true}), "");
  EXPECT_EQ(said({.alignments = Details::Alignments::Hard}), without + "--alignments needs");
  EXPECT_EQ(said({.replaceUnknowns = true}), without + "--replace-unknowns needs");

  // So it is if only another member of the ensemble is without.
  model.others.push_back(std::move(model.engine));
  model.engine = std::make_unique<Engine>(cpuDevice(image), 1);
  model.weights = {1, 1};
  EXPECT_EQ(said({.alignments = Details::Alignments::Soft}), without + "--alignments needs");
  EXPECT_EQ(said({.replaceUnknowns = true}), without + "--replace-unknowns needs");
  model.others.clear();
  EXPECT_EQ(said({.alignments = Details::Alignments::Soft}), "");
}

// Whoever has gone waits for no pass: not for one of the coverage, of the attention, or of what rescores.
TEST(Details, EachPassCanBeTheLast) {
  TranslationModel model{std::make_unique<Engine>(cpuDevice(image), 1),
                         std::make_shared<Vocabulary>(vocabularySize),
                         std::make_shared<Vocabulary>(vocabularySize),
                         {}};
  struct Enough {};
  int passes = 0, most = 0;
  model.beforePass = [&] {
    if (++passes > most)
      throw Enough();
  };
  const Ids source = {4, 5, 4, 3};
  std::vector<Hypothesis> found(3);
  for (Hypothesis &hypothesis : found)
    hypothesis = {.ids = {5, 4}, .byEos = true};
  SearchOptions options{.nBest = 3};
  const auto all = [&](int limit, const auto &work) { // whether all passes were taken
    most = limit;
    passes = 0;
    try {
      work();
      return true;
    } catch (const Enough &) {
      return false;
    }
  };
  const auto tell = [&] { translatedLine(model, {"", source, {}, ""}, found, options, Format::Ids); };
  EXPECT_TRUE(all(0, tell));
  options.details.alignments = Details::Alignments::Soft;
  EXPECT_TRUE(all(3, tell));
  EXPECT_EQ(passes, 3);
  EXPECT_FALSE(all(1, tell));
  EXPECT_EQ(passes, 2);

  const auto choose = [&] { (void)chosen(model, source, found, options, Format::Ids); };
  EXPECT_TRUE(all(0, choose));
  options.generation.coveragePenalty = 1;
  EXPECT_TRUE(all(3, choose));
  EXPECT_EQ(passes, 3);
  EXPECT_FALSE(all(2, choose));

  model.rescorer = std::make_unique<Engine>(cpuDevice(image), 1);
  options.batchTokens = 4; // a pass for each
  std::vector<std::vector<Hypothesis>> ofSentences = {found};
  const auto order = [&] { rescore(model, std::vector<Ids>{source}, options, Format::Ids, ofSentences); };
  EXPECT_TRUE(all(3, order));
  EXPECT_EQ(passes, 3);
  EXPECT_FALSE(all(2, order));
}

TEST_F(DecodeCommands, LinesInTheirOrderEmptyOnesEmpty) {
  CommandResult result =
      run({"translate", "--input", "source", "--beam", "2", "--n-best", "2", "--scores", "--alignments"});
  ASSERT_EQ(result.status, 0) << result.errors;
  std::vector<std::string> lines = split(result.output, '\n');
  ASSERT_EQ(lines.size(), 7u) << result.output;
  EXPECT_EQ(lines[2], "2\t\t0\t");
  const std::vector<Ids> sources = {{4, 5, 3}, {}, {5, 3}, {4, 4, 4, 5, 3}};
  for (size_t i : {0, 1, 3, 4, 5, 6}) {
    std::vector<std::string> fields = split(lines[i], '\t');
    size_t sentence = std::stoul(fields[0]) - 1;
    EXPECT_EQ(sentence, i < 2 ? 0u : i < 5 ? 2u : 3u);
    Ids ids = idsOf(fields[1]);
    double n = static_cast<double>(ids.size() + 1);
    EXPECT_NEAR(std::stod(fields[2]), logProbability(sources[sentence], ids) / std::pow((5 + n) / 6, 0.6), 1e-7);
    std::string pairs;
    for (size_t j = 0; j < ids.size(); ++j)
      pairs += (j ? " " : "") + std::to_string(j % sources[sentence].size()) + "-" + std::to_string(j);
    EXPECT_EQ(fields.size() > 3 ? fields[3] : "", pairs);
  }
}

namespace {

// The attention of attentionKernel, averaged over heads.
double attentionAt(size_t target, size_t source, size_t sources) {
  return source == target % sources ? 0.625 : source == (target + 1) % sources ? 0.375 : 0;
}

} // namespace

TEST_F(DecodeCommands, TokenScoresAndAttention) {
  const std::vector<Ids> sources = {{4, 5, 3}, {}, {5, 3}, {4, 4, 4, 5, 3}};
  const std::vector<std::string> common = {"translate", "--input", "source", "--beam", "2", "--n-best", "2"};
  for (const char *end : {"eos", "cut"}) {
    std::vector<std::string> words = common;
    words.insert(words.end(), {"--min-length", "3", "--max-length", "3", "--at-max-length", end, "--scores",
                               "--token-scores", "--alignments=soft"});
    const CommandResult text = run(words);
    ASSERT_EQ(text.status, 0) << text.errors;
    words.push_back("--json");
    const CommandResult json = run(words);
    ASSERT_EQ(json.status, 0) << json.errors;
    const std::vector<std::string> objects = split(json.output, '\n'), lines = split(text.output, '\n');
    ASSERT_EQ(objects.size(), 4u);
    EXPECT_EQ(objects[1], R"({"line":2,"source":"","translation":"","source_tokens":[],"hypotheses":[]})");
    EXPECT_EQ(lines[2], "2\t\t0\t\t");
    for (size_t line : {0, 2, 3}) {
      const nlohmann::json object = nlohmann::json::parse(objects[line]);
      const size_t width = sources[line].size();
      EXPECT_EQ(object["source_tokens"].size(), width);
      EXPECT_EQ(object["source_tokens"].back(), "3");
      ASSERT_EQ(object["hypotheses"].size(), 2u);
      for (size_t k : {0, 1}) {
        const nlohmann::json &found = object["hypotheses"][k];
        const Ids ids = found["ids"];
        const std::vector<double> scores = found["token_log_probabilities"];
        const std::vector<std::vector<double>> rows = found["attention"];
        const size_t count = ids.size() + (end == std::string("eos"));
        ASSERT_EQ(ids.size(), 3u);
        ASSERT_EQ(found["tokens"].size(), 3u);
        ASSERT_EQ(scores.size(), count);
        ASSERT_EQ(rows.size(), count);
        Ids read = {2};
        double sum = 0;
        std::vector<std::string> numbers, matrix;
        for (size_t i = 0; i < count; ++i) {
          const int32_t token = i < 3 ? ids[i] : 3;
          EXPECT_EQ(scores[i], nextLogProbabilities(sources[line], read)[token]);
          read.push_back(token);
          sum += scores[i];
          ASSERT_EQ(rows[i].size(), width);
          for (size_t j = 0; j < width; ++j)
            EXPECT_EQ(rows[i][j], attentionAt(i, j, width));
          if (i < 3) {
            EXPECT_EQ(found["tokens"][i], std::to_string(token));
          }
        }
        EXPECT_NEAR(sum, found["log_probability"].get<double>(), 1e-12);
        const std::vector<std::string> fields = split(lines[line == 0 ? k : 1 + 2 * (line - 1) + k], '\t');
        ASSERT_EQ(fields.size(), 5u);
        EXPECT_EQ(idsOf(fields[1]), ids);
        std::istringstream told(fields[3]);
        for (const double score : scores) {
          double number = 0;
          told >> number;
          EXPECT_NEAR(number, score, 1e-7);
        }
        const std::vector<std::string> written = split(fields[4], ' ');
        ASSERT_EQ(written.size(), count);
        for (size_t i = 0; i < count; ++i) {
          const std::vector<std::string> row = split(written[i], ',');
          ASSERT_EQ(row.size(), width);
          for (size_t j = 0; j < width; ++j)
            EXPECT_EQ(std::stod(row[j]), attentionAt(i, j, width));
        }
      }
    }
  }
  // The decoder has no position after its last one, which a translation that is cut off has reached.
  const CommandResult longest = run({"translate", "--input", "source", "--min-length", "9", "--max-length", "9",
                                     "--at-max-length", "cut", "--alignments"});
  ASSERT_EQ(longest.status, 0) << longest.errors;
  EXPECT_TRUE(split(longest.output, '\n')[0].ends_with(" 2-8")) << longest.output;
  const CommandResult none = run({"translate", "--input", "source", "--alignments", "--alignments=none"});
  EXPECT_EQ(none.output, run({"translate", "--input", "source"}).output);
  const CommandResult spaced = run({"translate", "--input", "source", "--alignments", "soft"});
  EXPECT_EQ(spaced.status, 2);
  EXPECT_NE(spaced.errors.find("error: --alignments soft: the value stands after '='; give --alignments=soft\n"),
            std::string::npos)
      << spaced.errors;
}

TEST_F(DecodeCommands, UnknownTokensAreReplacedBySourceTokens) {
  writeFile("words", "<pad>\n<unk>\n<s>\n</s>\na\nb\n");
  writeFile("text", "a zebra\n\nzoo b  yak\n");
  writeFile("prefix", "q q q q\n\na q q\n");
  const std::vector<std::vector<std::string>> sources = {{"a", "zebra"}, {}, {"zoo", "b", "yak"}};
  for (const std::string format : {"text", "pieces"}) {
    const std::vector<std::string> words = {"translate", "--input",      "text", "--vocab", "words", "--prefix",
                                            "prefix",    "--max-length", "5",    "--beam",  "2",     "--json"};
    std::vector<std::string> replacing = words;
    replacing.push_back("--replace-unknowns");
    const CommandResult plain = run(words, format), result = run(replacing, format);
    ASSERT_EQ(result.status, 0) << result.errors;
    const std::vector<std::string> before = split(plain.output, '\n'), lines = split(result.output, '\n');
    ASSERT_EQ(lines.size(), 3u);
    for (size_t line : {0, 2}) {
      const nlohmann::json found = nlohmann::json::parse(lines[line])["hypotheses"][0];
      const Ids ids = found["ids"];
      EXPECT_EQ(nlohmann::json::parse(before[line])["hypotheses"][0]["ids"], found["ids"]);
      std::string expected;
      const size_t own = sources[line].size();
      int unknown = 0;
      for (size_t j = 0; j < ids.size(); ++j) {
        size_t best = 0;
        for (size_t i = 1; i < own; ++i)
          if (attentionAt(j, i, own + 1) > attentionAt(j, best, own + 1)) // eos is a key, too
            best = i;
        unknown += ids[j] == 1;
        expected += (j ? " " : "") + (ids[j] == 1 ? sources[line][best] : std::string(ids[j] == 4 ? "a" : "b"));
      }
      EXPECT_GE(unknown, 2);
      EXPECT_EQ(found["text"], expected);
    }
  }
  const CommandResult ids = run({"translate", "--input", "source", "--replace-unknowns"});
  EXPECT_EQ(ids.status, 1);
  EXPECT_NE(ids.errors.find("--replace-unknowns excludes --format ids"), std::string::npos) << ids.errors;
}

TEST_F(DecodeCommands, LinesOfJson) {
  writeFile("lines", "{\"id\": 12345678901234567890123,  \"source\":\"4 5 3\", \"x\":[1.10,{}] ,\"\u00e9\":null, "
                     "\"prefix\": \"5 5\"} \r\n"
                     "{\"source\":\"\",\"line\":\"mine\"}\n"
                     "\"5 3\"\n"
                     "{\"prefix\":null,\"source\":\"4 4 4 5 3\"}");
  const CommandResult result = run({"translate", "--input", "lines", "--json-input"});
  ASSERT_EQ(result.status, 0) << result.errors;
  const std::vector<std::string> lines = split(result.output, '\n');
  ASSERT_EQ(lines.size(), 4u);
  writeFile("prefixes", "5 5\n\n\n\n");
  const std::vector<std::string> plain =
      split(run({"translate", "--input", "source", "--prefix", "prefixes", "--json"}).output, '\n');
  // What a line without JSON gives behind its source.
  const auto behind = [&](size_t line) { return plain[line].substr(plain[line].find(",\"translation\"")); };
  EXPECT_EQ(lines[0], "{\"id\": 12345678901234567890123,  \"source\":\"4 5 3\", \"x\":[1.10,{}] ,\"\u00e9\":null, "
                      "\"prefix\": \"5 5\",\"line\":1" +
                          behind(0));
  EXPECT_EQ(lines[1], "{\"source\":\"\",\"line\":\"mine\"" + behind(1));
  EXPECT_EQ(lines[2], "{\"source\":\"5 3\",\"line\":3" + behind(2));
  EXPECT_EQ(lines[3], "{\"prefix\":null,\"source\":\"4 4 4 5 3\",\"line\":4" + behind(3));

  for (const auto &[line, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "lines:2: the line is blank; expected a JSON object, such as {\"source\": \"...\"}"},
           {" \t", "lines:2: the line is blank"},
           {"5", "lines:2: expected a JSON object, such as {\"source\": \"...\"}, or a string, found 5"},
           {"{}", "lines:2: source: missing; expected the line to translate"},
           {"{\"source\": 5}", "lines:2: source: expected a string, found 5"},
           {"{\"source\": \"4\\n5\"}", "lines:2: source: expected one line, found a line break"},
           {"\"4\\n5\"", "lines:2: the line: expected one line, found a line break"},
           {"{\"source\": \"4\", \"prefix\": []}", "lines:2: prefix: expected a string, found []"},
           {"{\"source\": \"4\", \"prefix\": \"3\"}", "lines:2: prefix: a prefix cannot hold token 3"},
           {"{\"source\": \"4\", \"constraints\": \"5\"}",
            "lines:2: constraints: expected a list of phrases, or of lists of phrases of which one is enough, found "},
           {"{\"source\": \"4\", \"constraints\": [[\"5\", 6]]}", "lines:2: constraints: expected phrases, found 6"},
           {"{\"source\": \"4\", \"constraints\": [[\"5\", \"4 3\"]]}",
            "lines:2: constraint 1: a phrase cannot hold token 3"},
           {"{\"source\": \"x\"}", "lines:2: 'x' is not a token id"},
           {"{\"source\": \"4\", \"hypotheses\": 1}", "lines:2: hypotheses: this field is written by translate"},
           {"{\"source\": \"4\", \"source\": \"5\"}", "lines:2: source: given twice in one object"},
           {"{\"source\": \"4\"", "lines:2: column 15: not JSON: "},
           {"{\"source\": \"4\"} 5", "lines:2: column 17: not JSON: "}}) {
    writeFile("lines", "\"4 3\"\n" + line + "\n\"5 3\"\n");
    const CommandResult refused = run({"translate", "--input", "lines", "--json-input"});
    EXPECT_EQ(refused.status, 1) << line;
    EXPECT_NE(refused.errors.find("error: " + message), std::string::npos) << refused.errors;
    EXPECT_EQ(std::ranges::count(refused.errors, '\n'), 1) << refused.errors;
  }
  const CommandResult both = run({"translate", "--input", "lines", "--json-input", "--prefix", "prefixes"});
  EXPECT_EQ(both.status, 2);
  EXPECT_NE(both.errors.find("--prefix excludes --json-input"), std::string::npos) << both.errors;
}

TEST_F(DecodeCommands, JsonPrefixAndOutputFile) {
  writeFile("prefix", "5 5\n\n\n1\n");
  CommandResult result = run({"translate", "--input", "source", "--json", "--prefix", "prefix", "--output", "out"});
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.output, "");
  std::vector<std::string> lines = readLines("out");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1], R"({"line":2,"source":"","translation":"","hypotheses":[]})");
  nlohmann::json first = nlohmann::json::parse(lines[0]);
  Ids ids = first["hypotheses"][0]["ids"];
  EXPECT_EQ(Ids(ids.begin(), ids.begin() + 2), (Ids{5, 5}));
  EXPECT_EQ(idsOf(first["translation"]), ids);
  EXPECT_EQ(first["hypotheses"][0]["log_probability"].get<double>(), logProbability({4, 5, 3}, ids));
}

// BART's tokenizers put <s> before a line; if a model's decoder starts with it, the search has put it there already.
TEST_F(DecodeCommands, StartInTheFrameOfAVocabularyIsNoPartOfAPrefix) {
  writeFile("tokenizer.json",
            R"({"model": {"type": "BPE", "vocab": {"a": 4, "b": 5}, "merges": []},
                "added_tokens": [{"id": 2, "content": "<s>", "special": true}, {"id": 3, "content": "</s>", "special": true}],
                "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}},
                  {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "</s>"}}],
                  "special_tokens": {"<s>": {"ids": [2]}, "</s>": {"ids": [3]}}}})");
  writeFile("text", "ab\nb\n");
  writeFile("prefix", "bab\n\n");
  const CommandResult result =
      run({"translate", "--input", "text", "--vocab", "tokenizer.json", "--prefix", "prefix", "--json"}, "text");
  ASSERT_EQ(result.status, 0) << result.errors;
  const Ids ids = nlohmann::json::parse(split(result.output, '\n')[0])["hypotheses"][0]["ids"];
  ASSERT_GE(ids.size(), 3U);
  EXPECT_EQ(Ids(ids.begin(), ids.begin() + 3), (Ids{5, 4, 5}));
}

TEST_F(DecodeCommands, ScoresAndPerplexity) {
  writeFile("source", "4 5 3\n5 3\n");
  writeFile("target", "4 4\n\n");
  CommandResult result = run({"score", "--source", "source", "--target", "target"});
  ASSERT_EQ(result.status, 0) << result.errors;
  double first = logProbability({4, 5, 3}, {4, 4}), second = logProbability({5, 3}, {});
  std::vector<std::string> lines = split(result.output, '\n');
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NEAR(std::stod(lines[0]), first, 1e-7);
  EXPECT_NEAR(std::stod(lines[1]), second, 1e-7);
  result = run({"score", "--source", "source", "--target", "target", "--json"});
  nlohmann::json object = nlohmann::json::parse(result.output);
  EXPECT_EQ(object["tokens"], 4);
  EXPECT_NEAR(object["perplexity"].get<double>(), std::exp(-(first + second) / 4), 1e-9);
  EXPECT_FALSE(object.contains("token_log_probabilities"));
  // Each token's, whose sums these are.
  std::vector<std::vector<double>> expected = {{}, {nextLogProbabilities({5, 3}, {2})[3]}};
  for (const Ids &read : {Ids{2}, Ids{2, 4}, Ids{2, 4, 4}})
    expected[0].push_back(nextLogProbabilities({4, 5, 3}, read)[read.size() < 3 ? 4 : 3]);
  result = run({"score", "--source", "source", "--target", "target", "--json", "--token-scores"});
  object = nlohmann::json::parse(result.output);
  EXPECT_EQ(object["token_log_probabilities"].get<std::vector<std::vector<double>>>(), expected);
  EXPECT_EQ(object["pieces"].dump(), R"([["4","4"],[]])");
  result = run({"score", "--source", "source", "--target", "target", "--token-scores"});
  lines = split(result.output, '\n');
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(std::ranges::count(lines[0], ' '), 2);
  EXPECT_NEAR(std::stod(lines[0].substr(lines[0].find('\t'))), expected[0][0], 1e-7);
  EXPECT_NEAR(std::stod(lines[1].substr(lines[1].find('\t'))), second, 1e-7);
}

TEST_F(DecodeCommands, MistakesAreOneLineAndLeaveTheOutput) {
  writeFile("out", "before\n");
  writeFile("one", "4\n");
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{"--beam", "2", "--n-best", "3"}, "--n-best is larger than --beam"},
      {{"--compute-type", "int8"}, "--compute-type int8"},
      {{"--device", "cuda"}, "no PTX"},
      {{"--prefix", "one"}, "one: 1 prefixes for 4 lines"},
      {{"--input", "missing"}, "missing: "},
  };
  for (const auto &[flag, value] : std::vector<std::pair<std::string, std::string>>{{"--beam", "0"},
                                                                                    {"--beam", "2000000000"},
                                                                                    {"--n-best", "0"},
                                                                                    {"--length-penalty", "nan"},
                                                                                    {"--length-penalty", "1e30"},
                                                                                    {"--length-penalty", "-40.5"},
                                                                                    {"--temperature", "0"},
                                                                                    {"--temperature", "nan"},
                                                                                    {"--top-p", "0"},
                                                                                    {"--top-p", "1.5"},
                                                                                    {"--top-k", "-1"},
                                                                                    {"--max-length", "-1"},
                                                                                    {"--min-length", "1e30"},
                                                                                    {"--batch-tokens", "0"},
                                                                                    {"--threads", "100000"}}) {
    CommandResult result = run({"translate", "--input", "source", "--output", "out", flag, value});
    EXPECT_EQ(result.status, 2) << flag << " " << value;
    EXPECT_NE(result.errors.find(flag), std::string::npos) << result.errors;
  }
  for (auto &[flags, message] : mistakes) {
    std::vector<std::string> words = {"translate", "--output", "out"};
    if (flags[0] != "--input")
      words.insert(words.end(), {"--input", "source"});
    words.insert(words.end(), flags.begin(), flags.end());
    CommandResult result = run(words);
    EXPECT_EQ(result.status, 1) << message;
    EXPECT_NE(result.errors.find(message), std::string::npos) << result.errors;
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
    EXPECT_EQ(readFile("out"), "before\n");
  }
  writeFile("prefixes", "4\n5 3\n\n\n");
  CommandResult result = run({"translate", "--input", "source", "--prefix", "prefixes"});
  EXPECT_NE(result.errors.find("prefixes:2: a prefix cannot hold token 3"), std::string::npos) << result.errors;
}
