// Tests the commands on a complete model of hand-written kernels, which is this program's own image.
#include "app/Commands.h"
#include "device/cpu/CpuDevice.h"
#include "engine/Identity.h"
#include "measure/Commands.h"
#include "measure/Peak.h"
#include "model.h"
#include "plan/Serialization.h"
#include "support/CommandLine.h"
#include "support/FileWriter.h"
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

using namespace xfc;
using Json = nlohmann::json;

namespace {

const std::vector<uint8_t> bagPlan = serialize(bagModel());
xfc_image bagImage{XFC_ABI_VERSION, 6, "any", "", bagKernels, bagPlan.data(), bagPlan.size()};
const std::vector<uint8_t> lameCopy = bagPlan;
const xfc_image lameImage{XFC_ABI_VERSION, 6, "a CPU of the future", "antigravity", bagKernels, lameCopy.data(),
                          lameCopy.size()};

struct Outcome {
  int status;
  std::string out, err;
};

Outcome call(const std::string &line) {
  std::istringstream stream("translator " + line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;)
    words.push_back(word);
  std::vector<char *> arguments;
  for (std::string &word : words)
    arguments.push_back(word.data());
  CommandLine app("", "translator");
  app.requireVerb();
  for (auto add : {addForward, addSelfcheck, addBench, addInfo})
    add(app);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.status = runCommandLine(app, static_cast<int>(arguments.size()), arguments.data());
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

StoredTensor integers(std::vector<int64_t> shape, std::vector<int32_t> values) {
  StoredTensor tensor{"I32", std::move(shape), std::vector<uint8_t>(values.size() * 4)};
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

class AppCommands : public testing::Test {
protected:
  AppCommands() {
    std::string pattern = testing::TempDir() + "xfc-commands-XXXXXX";
    folder = mkdtemp(pattern.data());
    Engine engine(cpuDevice(bagImage), 1);
    initializeParameters(engine, 9);
    parameters.assign(static_cast<float *>(engine.parameters()), static_cast<float *>(engine.parameters()) + 144);
    writeSafetensors(folder + "/w", weights(engine), identityOf(engine.module()));
    // Sentence 1 has a pad inside and two at its end; sentence 2 has only pads.
    input = {{"source", integers({3, 4}, {4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0})},
             {"target", integers({3, 3}, {2, 4, 5, 2, 0, 6, 2, 0, 0})},
             {"labels", integers({3, 3}, {4, 5, 3, 6, 0, 3, 0, 0, 0})}};
    input["source"].bytes[4 * 6] = 9; // 8 0 9 0
  }
  ~AppCommands() override { std::filesystem::remove_all(folder); }

  std::string forwardLine(const std::string &more = "") {
    writeSafetensors(folder + "/in", viewsOf(input));
    return "forward --weights " + folder + "/w --input " + folder + "/in --output " + folder + "/out " + more;
  }
  static float value(const StoredTensor &tensor, int64_t i) {
    float result;
    std::memcpy(&result, tensor.bytes.data() + i * 4, 4);
    return result;
  }

  // Computed independently from the padded rectangle: logits at a target position, given the keys that its sentence
  // has.
  std::vector<double> logits(int sentence, int32_t id) const {
    static const std::vector<std::vector<int32_t>> visible = {{4, 5, 6, 7}, {8, 9}, {}};
    std::vector<double> hidden(4), result(12);
    for (int j = 0; j < 4; ++j) {
      for (int32_t key : visible[sentence])
        hidden[j] += parameters[key * 4 + j] / static_cast<double>(visible[sentence].size());
      hidden[j] += parameters[48 + id * 4 + j];
    }
    for (int v = 0; v < 12; ++v)
      for (int j = 0; j < 4; ++j)
        result[v] += hidden[j] * parameters[96 + v * 4 + j];
    return result;
  }

  std::string folder;
  std::vector<float> parameters;
  Tensors input;
};

} // namespace

extern "C" const xfc_image *const xfc_images[] = {&lameImage, &bagImage, nullptr};
extern "C" const xfc_device_image *const xfc_device_images[] = {nullptr};

TEST_F(AppCommands, ForwardScattersRaggedRows) {
  Outcome outcome = call(forwardLine("--attention --gradients --label-smoothing 0.1"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  Tensors out = readSafetensors(folder + "/out");
  const int32_t ids[3][3] = {{2, 4, 5}, {2, 0, 6}, {2, 0, 0}}, labels[3][3] = {{4, 5, 3}, {6, 0, 3}, {0, 0, 0}};
  ASSERT_EQ(out["logits"].shape, (std::vector<int64_t>{3, 3, 12}));
  double sum = 0;
  for (int b = 0; b < 3; ++b)
    for (int t = 0; t < 3; ++t) {
      const bool real = !(b == 2 && t > 0); // only trailing pads have no rows
      std::vector<double> want = logits(b, ids[b][t]);
      double total = 0, mean = 0;
      for (int v = 0; v < 12; ++v) {
        EXPECT_NEAR(value(out["logits"], (b * 3 + t) * 12 + v), real ? want[v] : 0, 1e-5) << b << " " << t;
        total += std::exp(want[v]);
      }
      for (int v = 0; v < 12; ++v)
        mean += (std::log(total) - want[v]) / 12;
      if (labels[b][t] != 0)
        sum += 0.9 * (std::log(total) - want[labels[b][t]]) + 0.1 * mean;
    }
  EXPECT_NEAR(value(out["loss"], 0), sum / 5, 1e-5);
  EXPECT_TRUE(out["loss"].shape.empty());

  ASSERT_EQ(out["encoder_output"].shape, (std::vector<int64_t>{3, 4, 4}));
  const int32_t sources[12] = {4, 5, 6, 7, 8, 0, 9, 0, 0, 0, 0, 0};
  for (int i = 0; i < 12; ++i)
    for (int j = 0; j < 4; ++j)
      EXPECT_EQ(value(out["encoder_output"], i * 4 + j), sources[i] ? parameters[sources[i] * 4 + j] : 0) << i;

  const StoredTensor &attention = out["attention.decoder.layers.0.cross_attn"];
  ASSERT_EQ(attention.shape, (std::vector<int64_t>{3, 1, 3, 4}));
  const float weightOf[12] = {0.25, 0.25, 0.25, 0.25, 0.5, 0, 0.5, 0, 0, 0, 0, 0};
  for (int b = 0; b < 3; ++b)
    for (int t = 0; t < 3; ++t)
      for (int s = 0; s < 4; ++s)
        EXPECT_EQ(value(attention, (b * 3 + t) * 4 + s), b == 2 ? 0 : weightOf[b * 4 + s]) << b << t << s;

  // A tied gradient occurs once, under its first name; the gradient of ids that do not occur is 0.
  EXPECT_EQ(out.count("grad.source.weight"), 0u);
  ASSERT_EQ(out["grad.encoder.embed.weight"].shape, (std::vector<int64_t>{12, 4}));
  EXPECT_NE(value(out["grad.encoder.embed.weight"], 9 * 4), 0);
  EXPECT_EQ(value(out["grad.encoder.embed.weight"], 10 * 4), 0);
  EXPECT_EQ(value(out["grad.encoder.embed.weight"], 0), 0); // pads are not keys
  EXPECT_EQ(out.size(), 7u);
}

TEST_F(AppCommands, ForwardRefuses) {
  auto refused = [&](const char *what, auto change, const char *flags = "") {
    const Tensors before = input;
    change(input);
    Outcome outcome = call(forwardLine(flags));
    input = before;
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.err.rfind("error: ", 0), 0u);
    EXPECT_NE(outcome.err.find(what), std::string::npos) << outcome.err;
  };
  refused("'source' is missing", [](Tensors &t) { t.erase("source"); });
  refused("'target'[1, 2] is 12", [](Tensors &t) { t["target"].bytes[5 * 4] = 12; });
  refused("'target' is F32 [3, 3], expected int32", [](Tensors &t) { t["target"].type = "F32"; });
  refused("'source' is I32 [12], expected int32", [](Tensors &t) { t["source"].shape = {12}; });
  refused("'source' has 3 sentences, 'target' 1", [](Tensors &t) { t["target"] = integers({1, 1}, {2}); });
  refused("'labels' is [3, 2]", [](Tensors &t) { t["labels"] = integers({3, 2}, {3, 3, 3, 3, 3, 3}); });
  refused("no 'labels'", [](Tensors &t) { t.erase("labels"); }, "--gradients");
  refused("every label is pad", [](Tensors &t) { t["labels"].bytes.assign(36, 0); }, "--gradients");
  refused("'source' is [0, 4], expected at least one sentence", [](Tensors &t) { t["source"] = integers({0, 4}, {}); });
  refused("'target' is [3, 0], expected at least one sentence", [](Tensors &t) { t["target"] = integers({3, 0}, {}); });
  refused("max_length is 30", [](Tensors &t) { t["source"] = integers({3, 31}, std::vector<int32_t>(93, 4)); });
}

TEST_F(AppCommands, Info) {
  Outcome outcome = call("info --json --batch-tokens 64 --length 16");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  Json info = Json::parse(outcome.out);
  EXPECT_EQ(info["model"], "bag");
  EXPECT_EQ(info["model_hash"], "b46");
  EXPECT_EQ(info["parameters"], 144);
  EXPECT_EQ(info["cpu"], "any"); // the better image needs features that no CPU has
  EXPECT_EQ(info["cpus"], Json({"a CPU of the future", "any"}));
  EXPECT_EQ(info["memory"]["training"]["arena_bytes"], 576 + 64 * 16 + 2 * 64 * 4) << "gradients, then activations";
  EXPECT_EQ(call("info").status, 0);
  for (const char *sizes : {"--batch-tokens 9223372036854775807", "--batch-tokens 9000000000 --length 9000000000",
                            "--sentences 9000000000000000000", "--sentences 900000000000000 --beam 65536"}) {
    outcome = call(std::string("info ") + sizes);
    EXPECT_EQ(outcome.status, 1) << sizes;
    EXPECT_EQ(outcome.err, "error: batches of these sizes take more memory than any machine has; use smaller ones\n")
        << sizes;
  }
}

// A share of the peak is that of the instructions that a kernel multiplies with.
TEST(Peak, DependsOnTheTypeOfProducts) {
  const Peak peak{.gflops = 1, .bf16 = 2, .int8 = 3};
  for (const char *name : {"linear_512x512", "linear_bf16x_relu", "norm_512", "attention_8x64"})
    EXPECT_EQ(peak.rateOf(name), 1) << name;
  for (const char *name : {"linear_512x512_bf16", "linear_weight_grad_8x8_bias_bf16", "linear_512x512_bf16_relu_2"})
    EXPECT_EQ(peak.rateOf(name), 2) << name;
  EXPECT_EQ(peak.rateOf("linear_candidates_4000x128_int8"), 3);
}

TEST_F(AppCommands, BenchTrainAndDecode) {
  Outcome outcome = call("bench train --json --batch-tokens 64 --length 16 --steps 3 --threads 1 --profile");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  Json result = Json::parse(outcome.out);
  EXPECT_EQ(result["what"], "train");
  EXPECT_EQ(result["target_tokens"], 3 * 64);
  EXPECT_EQ(result["source_tokens"], 3 * 64);
  EXPECT_EQ(result["threads"], 1);
  EXPECT_GT(result["tokens_per_second"], 0);
  EXPECT_GT(result["peak_rss_mb"], 1);
  // The step took as much memory as `info` predicts.
  Json memory = Json::parse(call("info --json --batch-tokens 64 --length 16 --threads 1").out)["memory"]["training"];
  EXPECT_EQ(result["arena_bytes"], memory["arena_bytes"]);
  // The profile lists the slowest kernel first, and counts the work of one step.
  EXPECT_GT(result["peak_gflops"], 0.1);
  EXPECT_GT(result["peak_copy_gb_per_second"], 0.1);
  const Json &kernels = result["kernels"];
  ASSERT_GE(kernels.size(), 2u);
  for (size_t i = 1; i < kernels.size(); ++i)
    EXPECT_GE(kernels[i - 1]["ms"], kernels[i]["ms"]);
  for (const Json &kernel : kernels)
    EXPECT_EQ(kernel["calls"], 1) << kernel;
  outcome = call("bench train --batch-tokens 64 --length 16 --steps 3 --threads 1 --profile");
  EXPECT_NE(outcome.out.find("loss_gradients"), std::string::npos);
  EXPECT_NE(outcome.out.find("encoder.embed"), std::string::npos);
  EXPECT_NE(outcome.out.find("of peak"), std::string::npos);

  result = Json::parse(call("bench peak --json --threads 1").out);
  EXPECT_EQ(result["threads"], 1);
  EXPECT_GT(result["peak_gflops"], 0.1);
  EXPECT_GE(result["peak_bf16_gflops"], 0.1);
  EXPECT_GT(result["peak_int8_gops"], 0.1);
  EXPECT_GT(result["peak_read_gb_per_second"], 0.1);

  outcome = call("bench decode --json --sentences 5 --batch 2 --length 6 --beam 3 --steps 2");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  result = Json::parse(outcome.out);
  EXPECT_EQ(result["tokens"], 5 * 6);
  EXPECT_EQ(result["steps"], 3 * 6);

  writeFile(folder + "/a", "4 5 6\n7\n4 4 4 4 4\n");
  writeFile(folder + "/b", "5\n6 7\n8 9 10\n");
  outcome = call("bench train --json --source " + folder + "/a --target " + folder + "/b --format ids --steps 2");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(Json::parse(outcome.out)["target_tokens"], 2 * (2 + 3 + 4)); // including eos

  EXPECT_EQ(call("bench train --length 31").status, 1);
  EXPECT_EQ(call("bench train --source " + folder + "/a").status, 1);
}

// Correct kernels keep all promises, and a kernel whose sums depend on the batch is caught.
TEST_F(AppCommands, PromisesOfEqualBits) {
  const std::string command = "selfcheck --promises --mixes 20 --threads 2";
  Outcome outcome = call(command);
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("every promise is kept"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("in 20 random batches"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("resume: tensors of the state"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("BROKEN"), std::string::npos) << outcome.out;
  bagBatchDefect = 1e-4f;
  outcome = call(command);
  bagBatchDefect = 0;
  EXPECT_EQ(outcome.status, 1);
  std::istringstream lines(outcome.out);
  int broken = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.find("BROKEN") != std::string::npos) {
      EXPECT_EQ(line.rfind("batch mates:", 0), 0u) << line;
      ++broken;
    }
  EXPECT_EQ(broken, 2) << outcome.out;
  EXPECT_EQ(outcome.err.rfind("error: selfcheck failed: a promise", 0), 0u) << outcome.err;
  EXPECT_NE(call("selfcheck --mixes 3").status, 0);
}

TEST_F(AppCommands, Selfcheck) {
  Outcome outcome = call("selfcheck");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_NE(outcome.out.find("gradient encoder.embed.weight"), std::string::npos);
  EXPECT_NE(outcome.out.find("everything holds"), std::string::npos);
  EXPECT_EQ(outcome.out.find("FAILED"), std::string::npos);

  bagDefect = 1.1f;
  outcome = call("selfcheck --quiet");
  bagDefect = 1;
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.out.find("gradient decoder.embed.weight"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("gradient output.weight"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("1 check failed"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.err.rfind("error: selfcheck failed", 0), 0u) << outcome.err;
}

// Where products round their operands, the noise of the loss neither fails correct gradients nor hides wrong ones.
TEST_F(AppCommands, SelfcheckOfRoundedProducts) {
  Module module = bagModel();
  module.compute = "bf16";
  const std::vector<uint8_t> plan = serialize(module);
  const xfc_image exact = bagImage;
  bagImage.plan = plan.data();
  bagImage.plan_size = plan.size();
  bagRounds = true;
  for (const char *seed : {"1", "2", "3", "4", "5", "6"}) {
    const std::string command = std::string("selfcheck --seed ") + seed;
    Outcome outcome = call(command);
    EXPECT_EQ(outcome.status, 0) << outcome.out;
    EXPECT_NE(outcome.out.find(" 0.05\n"), std::string::npos) << outcome.out;
    for (float defect : {0.75f, 1.25f}) {
      bagDefect = defect;
      outcome = call(command + " --quiet");
      bagDefect = 1;
      EXPECT_EQ(outcome.status, 1);
      EXPECT_NE(outcome.out.find("gradient decoder.embed.weight"), std::string::npos) << outcome.out;
      EXPECT_NE(outcome.out.find("1 check failed"), std::string::npos) << outcome.out;
    }
  }
  bagRounds = false;
  bagImage = exact;
}

TEST_F(AppCommands, WrongCommandLines) {
  Outcome outcome = call("bench train --step 3");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("did you mean '--steps'?"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("translator bench train --help"), std::string::npos) << outcome.err;
  outcome = call("bench trian");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("did you mean 'train'?"), std::string::npos) << outcome.err;
  outcome = call("inof");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("did you mean 'info'?"), std::string::npos) << outcome.err;
  EXPECT_EQ(call("").status, 2);
  EXPECT_EQ(call("info --batch-tokens none").status, 2);
  EXPECT_EQ(call("info --help").status, 0);
}
