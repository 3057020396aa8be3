// Tests complete training runs of a model of hand-written kernels: a table of next-token logits. The result must not
// depend on where a run was stopped, killed or resumed.
#include "allocations.h"
#include "app/Commands.h"
#include "engine/Safetensors.h"
#include "plan/Serialization.h"
#include "support/CommandLine.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/Progress.h"
#include "train/Checkpoint.h"
#include "train/Log.h"
#include "train/Prepare.h"
#include "train/run/Trainer.h"
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace xfc;
namespace fs = std::filesystem;

namespace {

constexpr int64_t V = 12;

std::vector<int64_t>
    allocationsAtLoss; // the allocation count at each call of the gradients' kernel, as far as there is room

template <typename T> T *buffer(const xfc_call *call, int i) { return static_cast<T *>(call->buffers[i]); }

// Operands: target ids, labels, smoothing, table, and for gradients loss_scale; results: loss, nll, and the gradient.
template <bool gradients> void lossKernel(const xfc_call *call, int64_t, int64_t, void *) {
  const xfc_rows &rows = call->shape->sets[XFC_TARGET];
  const int32_t *ids = buffer<int32_t>(call, 0), *labels = buffer<int32_t>(call, 1);
  float smoothing = *buffer<float>(call, 2), *table = buffer<float>(call, 3);
  float *loss = buffer<float>(call, gradients ? 5 : 4), *nll = buffer<float>(call, gradients ? 6 : 5);
  float *gradient = gradients ? buffer<float>(call, 7) : nullptr;
  if (gradients) {
    std::fill(gradient, gradient + V * V, 0.0f);
    if (allocationsAtLoss.size() < allocationsAtLoss.capacity())
      allocationsAtLoss.push_back(allocations);
  }
  for (int64_t i = 0; i < rows.rows; ++i) {
    float *logits = table + ids[i] * V, sum = 0, all = 0;
    for (int64_t v = 0; v < V; ++v)
      sum += std::exp(logits[v]);
    for (int64_t v = 0; v < V; ++v)
      all -= (logits[v] - std::log(sum)) / V;
    nll[i] = std::log(sum) - logits[labels[i]];
    loss[i] = (1 - smoothing) * nll[i] + smoothing * all;
    if (!gradients)
      continue;
    // A dropped row has no gradient: dropout, which depends on step and sentence, must be the same after a resume.
    uint32_t random =
        xfc_random(call->shape->dropout_key, 1, rows.sentences[rows.sequence_of[i]], rows.positions[i], 0, 0);
    float scale = random < 0x2000u ? 0 : buffer<float>(call, 4)[i];
    for (int64_t v = 0; v < V; ++v)
      gradient[ids[i] * V + v] +=
          scale * (std::exp(logits[v]) / sum - (1 - smoothing) * (v == labels[i]) - smoothing / V);
  }
}

// Operands: hyper, max_norm, parameters, gradients and moments, and the parameters' moving average; result: norm.
template <bool averages> void updateKernel(const xfc_call *call, int64_t, int64_t, void *) {
  const float *hyper = buffer<float>(call, 0), maxNorm = *buffer<float>(call, 1);
  float *p = buffer<float>(call, 2), *g = buffer<float>(call, 3), *m = buffer<float>(call, 4),
        *v = buffer<float>(call, 5);
  float squares = 0;
  for (int64_t i = 0; i < V * V; ++i)
    squares += g[i] * g[i];
  float norm = std::sqrt(squares), factor = maxNorm > 0 && norm > maxNorm ? maxNorm / norm : 1;
  *buffer<float>(call, averages ? 7 : 6) = norm;
  for (int64_t i = 0; i < V * V; ++i) {
    float gradient = std::clamp(factor * g[i], -hyper[8], hyper[8]) + hyper[4] * p[i];
    m[i] = hyper[1] * m[i] + (1 - hyper[1]) * gradient;
    v[i] = hyper[2] * v[i] + (1 - hyper[2]) * gradient * gradient;
    p[i] -= hyper[0] * hyper[5] * p[i] + hyper[0] * (m[i] / hyper[6]) / (std::sqrt(v[i] / hyper[7]) + hyper[3]);
    if (averages)
      buffer<float>(call, 6)[i] += hyper[9] * (p[i] - buffer<float>(call, 6)[i]);
  }
}

// Operands: the gradients, and the sums of those of earlier batches.
void accumulateKernel(const xfc_call *call, int64_t, int64_t, void *) {
  for (int64_t i = 0; i < V * V; ++i)
    buffer<float>(call, 0)[i] += buffer<float>(call, 1)[i];
}

Module tableModel() {
  Module module;
  module.model = "table";
  module.hash = "1";
  module.description = "{}";
  module.settings.width = V;
  module.sourceVocab = module.targetVocab = V;
  module.maxLength = module.maxTargetLength = 20;
  module.hasDecoder = true;
  module.parameterElements = (V * V + 15) / 16 * 16;
  module.states = {{"moment1"}, {"moment2"}, {"average"}};
  module.parameters = {{"table.weight", {}, {V, V}, 0, "xavier_uniform", V, V}};
  Partition one{Partition::Unit::One, 1, 1};
  module.kernels = {
      {"score", one, 0}, {"gradients", one, 0}, {"update", one, 0}, {"accumulate", one, 0}, {"average", one, 0}};
  auto place = [](Place::Kind kind, int64_t index = 0) { return Place{kind, index, 0}; };
  auto argument = [](const char *name, Argument::Role role, DType type, int8_t set, std::vector<int64_t> shape = {}) {
    return Argument{name, role, type, set, std::move(shape)};
  };
  Size rowOfTarget, scalar;
  rowOfTarget.rows[XFC_TARGET] = 4;
  scalar.constant = 64;

  for (bool gradients : {false, true}) {
    Program program;
    program.name = gradients ? "loss_and_gradients" : "score";
    program.arguments = {argument("source", Argument::Role::Input, DType::I32, XFC_SOURCE),
                         argument("target", Argument::Role::Input, DType::I32, XFC_TARGET),
                         argument("labels", Argument::Role::Input, DType::I32, XFC_TARGET),
                         argument("smoothing", Argument::Role::Scalar, DType::F32, -1)};
    if (gradients)
      program.arguments.push_back(argument("loss_scale", Argument::Role::Input, DType::F32, XFC_TARGET));
    program.buffers = {{rowOfTarget, 0, 1}, {rowOfTarget, 0, 1}};
    program.outputs = {{"loss", place(Place::Kind::Arena, 0), DType::F32, XFC_TARGET, -1, {}, 1},
                       {"nll", place(Place::Kind::Arena, 1), DType::F32, XFC_TARGET, -1, {}, 1}};
    Step step;
    step.kernel = gradients;
    step.set = step.keySet = XFC_TARGET;
    step.buffers = {place(Place::Kind::Argument, 1), place(Place::Kind::Argument, 2), place(Place::Kind::Argument, 3),
                    place(Place::Kind::Parameters)};
    if (gradients)
      step.buffers.push_back(place(Place::Kind::Argument, 4));
    step.location = "decoder.head";
    step.buffers.insert(step.buffers.end(), {place(Place::Kind::Arena, 0), place(Place::Kind::Arena, 1)});
    if (gradients)
      step.buffers.push_back(place(Place::Kind::Gradients));
    step.strides.assign(step.buffers.size(), 1);
    program.steps = {step};
    module.programs.push_back(program);
  }
  Program update;
  update.name = "update";
  update.arguments = {argument("hyper", Argument::Role::Scalar, DType::F32, -1, {10}),
                      argument("max_norm", Argument::Role::Scalar, DType::F32, -1)};
  update.buffers = {{scalar, 0, 1}};
  update.outputs = {{"norm", place(Place::Kind::Arena, 0), DType::F32, -1, -1, {}, 0}};
  Step step;
  step.kernel = 2;
  step.buffers = {place(Place::Kind::Argument, 0), place(Place::Kind::Argument, 1), place(Place::Kind::Parameters),
                  place(Place::Kind::Gradients),   {Place::Kind::State, 0, 0},      {Place::Kind::State, 1, 0},
                  place(Place::Kind::Arena, 0)};
  step.strides.assign(step.buffers.size(), 0);
  update.steps = {step};
  module.programs.push_back(update);
  update.name = "update.adam_ema";
  update.arguments[0].shape = {11};
  update.steps[0].kernel = 4;
  update.steps[0].buffers.insert(update.steps[0].buffers.end() - 1, {Place::Kind::State, 2, 0});
  update.steps[0].strides.push_back(0);
  module.programs.push_back(update);

  Program accumulate;
  accumulate.name = "accumulate";
  accumulate.arguments = {argument("sum.table.weight", Argument::Role::State, DType::F32, -1, {V, V})};
  step.kernel = 3;
  step.buffers = {place(Place::Kind::Gradients), place(Place::Kind::Argument, 0)};
  step.strides = {0, 0};
  accumulate.steps = {step};
  module.programs.push_back(accumulate);
  return module;
}

const xfc_kernel kernels[] = {lossKernel<false>, lossKernel<true>, updateKernel<false>, accumulateKernel,
                              updateKernel<true>};
const std::vector<uint8_t> planBytes = serialize(tableModel());
const xfc_image image = {XFC_ABI_VERSION, std::size(kernels), "test", "", kernels, planBytes.data(), planBytes.size()};

} // namespace

// The images of the executable under test.
extern "C" const xfc_image *const xfc_images[] = {&image, nullptr};
extern "C" const xfc_device_image *const xfc_device_images[] = {nullptr};

namespace {

void prepareIds(const PairFiles &text, const std::string &out, int threads) {
  PrepareOptions options;
  options.text = text;
  options.out = out;
  options.model.format = Format::Ids;
  options.model.threads = threads;
  options.model.quiet = true;
  prepare(options);
}

class TrainRun : public testing::Test {
protected:
  TrainRun()
      : folder(fs::temp_directory_path() /
               ("xfc_train_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()))) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    write("a", 1, 150);
    write("b", 2, 150);
    write("va", 3, 20);
    write("vb", 4, 20);
  }
  ~TrainRun() override { fs::remove_all(folder); }

  std::string file(const std::string &name) { return (folder / name).string(); }
  // Writes lines in which most tokens are followed by the next larger one.
  void write(const std::string &name, int seed, int lines) {
    std::mt19937 random(seed);
    std::ofstream stream(file(name));
    for (int i = 0; i < lines; ++i) {
      int id = 4 + random() % 8;
      for (int length = 1 + random() % 12; length > 0; --length) {
        stream << id << ' ';
        id = random() % 4 == 0 ? 4 + random() % 8 : 4 + (id - 3) % 8;
      }
      stream << '\n';
    }
  }
  TrainOptions options(const std::string &out, int64_t steps) {
    TrainOptions options;
    options.data.text = {{file("a")}, {file("b")}, {}};
    options.out = file(out);
    options.data.format = Format::Ids;
    options.length.steps = steps;
    options.batches.tokens = 100;
    options.rate.schedule = Schedule::Kind::Constant;
    options.rate.rate = 0.01;
    options.rate.warmup = 10;
    options.saves.every = 20;
    options.threads = 1;
    options.quiet = true;
    return options;
  }
  TrainOptions validated(TrainOptions options) {
    options.validation.text = {{file("va")}, {file("vb")}, {}};
    options.validation.every = 10;
    return options;
  }
  std::string run(const TrainOptions &options) {
    try {
      train(options, "{}\n");
    } catch (const Error &error) {
      return error.what();
    }
    return "";
  }
  std::string weightsOf(const std::string &out, const std::string &name = "last.safetensors") {
    return readFile(file(out) + "/" + name);
  }

  fs::path folder;
};

// Returns the exit status of `train` with these arguments; `message` receives its output.
int command(std::vector<std::string> arguments, std::string *message = nullptr) {
  CommandLine app("test", "test");
  addTrain(app);
  arguments.insert(arguments.begin(), {"test", "train"});
  std::vector<char *> pointers;
  for (std::string &argument : arguments)
    pointers.push_back(argument.data());
  testing::internal::CaptureStderr();
  int status = runCommandLine(app, static_cast<int>(pointers.size()), pointers.data());
  std::string said = testing::internal::GetCapturedStderr();
  if (message)
    *message = said;
  return status;
}

TEST_F(TrainRun, Learns) {
  ASSERT_EQ(run(validated(options("out", 200))), "");
  std::vector<nlohmann::json> records = readLog(file("out/train.jsonl"));
  std::vector<double> losses, valid;
  for (const nlohmann::json &record : records) {
    if (record.contains("loss")) {
      losses.push_back(record["loss"]);
      for (const char *name : {"step", "epoch", "nll", "ppl", "wps", "ups", "gnorm", "lr", "wall"})
        EXPECT_TRUE(record.contains(name)) << name;
      EXPECT_DOUBLE_EQ(record["lr"], 0.01);
    } else {
      valid.push_back(record["valid_nll"]);
    }
  }
  EXPECT_EQ(losses.size(), 20u);
  EXPECT_EQ(valid.size(), 20u);
  EXPECT_LT(losses.back(), losses.front() - 0.3);
  EXPECT_LT(valid.back(), valid.front() - 0.3);
  for (const char *name : {"best.safetensors", "last.safetensors", "config.json", "state/training.safetensors"})
    EXPECT_TRUE(exists(file("out/") + name)) << name;
}

TEST_F(TrainRun, ResumedEqualsNeverStopped) {
  for (int64_t accumulate : {1, 3}) {
    std::string whole = "whole" + std::to_string(accumulate), halves = "halves" + std::to_string(accumulate);
    TrainOptions first = validated(options(whole, 70));
    first.batches.accumulate = accumulate;
    ASSERT_EQ(run(first), "");
    first.out = file(halves);
    first.length.steps = 33; // in the middle of an epoch, and not where a save is due
    ASSERT_EQ(run(first), "");
    first.length.steps = 70;
    first.resume = true;
    ASSERT_EQ(run(first), "");
    EXPECT_EQ(weightsOf(whole), weightsOf(halves));
    EXPECT_EQ(weightsOf(whole, "best.safetensors"), weightsOf(halves, "best.safetensors"));
  }
}

TEST_F(TrainRun, KilledAndResumedEqualsNeverStopped) {
  ASSERT_EQ(run(options("whole", 3000)), "");
  for (int delay : {20, 60, 120}) { // milliseconds
    std::string out = "killed" + std::to_string(delay);
    TrainOptions killed = options(out, 3000);
    killed.saves.every = 1;
    pid_t child = fork();
    if (child == 0) {
      try {
        train(killed, "{}\n");
      } catch (...) {
      }
      _exit(0);
    }
    usleep(delay * 1000);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the run ended before it could be killed";
    killed.saves.every = 1000;
    killed.resume = true;
    std::ofstream(file(out) + "/state/training.safetensors.partial.1") << "cut off";
    ASSERT_EQ(run(killed), "");
    for (const fs::directory_entry &entry : fs::recursive_directory_iterator(file(out)))
      EXPECT_EQ(entry.path().string().find(".partial."), std::string::npos) << entry.path();
    EXPECT_EQ(weightsOf("whole"), weightsOf(out));
  }
}

// Covers everything from one batch's gradients to the next: the update, the choice of a batch and its preparation. Log
// records, every tenth step, and the plan of the next epoch may allocate.
TEST_F(TrainRun, StepsDoNotAllocate) {
  for (const char *name : {"a", "b"}) {
    std::ofstream stream(file(name));
    for (int line = 0; line < 1000; ++line)
      stream << "4 5 6 7 8 9 10 11 4\n";
  }
  for (auto [accumulate, traced] : {std::pair<int64_t, bool>(1, false), {3, false}, {3, true}}) {
    TrainOptions steady = options("steady" + std::to_string(accumulate) + (traced ? "traced" : ""), 30);
    steady.saves.every = 1000;
    steady.batches.accumulate = accumulate;
    if (traced)
      steady.trace.file = file("trace.json");
    steady.trace.first = 2;
    steady.trace.last = 30;
    allocationsAtLoss.clear();
    allocationsAtLoss.reserve(30 * accumulate);
    ASSERT_EQ(run(steady), "");
    ASSERT_EQ(allocationsAtLoss.size(), 30u * accumulate);
    for (int64_t call = 10 * accumulate; call + 1 < 30 * accumulate; ++call) {
      const bool recorded = (call + 1) % (10 * accumulate) == 0;
      EXPECT_EQ(allocationsAtLoss[call + 1] - allocationsAtLoss[call] > 0, recorded)
          << "batch " << call << ", accumulate " << accumulate << ", traced " << traced;
    }
  }
}

// The timeline holds only the requested steps, and changes no bit of the run.
TEST_F(TrainRun, TracesItsSteps) {
  TrainOptions plain = validated(options("plain", 12)), traced = validated(options("traced", 12));
  for (TrainOptions *both : {&plain, &traced})
    both->batches.accumulate = both->threads = 2;
  traced.trace.file = file("traced/trace.json"); // in the folder that the run creates
  traced.trace.first = 9;
  traced.trace.last = 10;
  ASSERT_EQ(run(plain), "");
  ASSERT_EQ(run(traced), "");
  EXPECT_EQ(weightsOf("plain"), weightsOf("traced"));
  EXPECT_EQ(readSafetensors(file("plain/state/training.safetensors")).at("moment1.table.weight").bytes,
            readSafetensors(file("traced/state/training.safetensors")).at("moment1.table.weight").bytes);

  struct Interval {
    double begin, end;
    std::string what;
  };
  std::vector<Interval> main;
  std::map<std::string, int> counts;
  const nlohmann::json timeline = nlohmann::json::parse(readFile(traced.trace.file));
  for (const nlohmann::json &event : timeline["traceEvents"]) {
    if (event["ph"] != "X")
      continue;
    EXPECT_EQ(event["pid"], 0);
    const std::string what = event["cat"].get<std::string>() + " " + event["name"].get<std::string>();
    ++counts[what];
    if (event["tid"] == 0)
      main.push_back({event["ts"], event["ts"].get<double>() + event["dur"].get<double>(), what});
  }
  EXPECT_EQ(counts["step step 9"], 1);
  EXPECT_EQ(counts["step step 10"], 1);
  EXPECT_EQ(counts.count("step step 8") + counts.count("step step 11"), 0u);
  EXPECT_EQ(counts["program loss_and_gradients"], 4); // two batches per step
  EXPECT_EQ(counts["kernel gradients"], 4);           // one chunk each
  EXPECT_EQ(counts["program accumulate"], 2);
  EXPECT_EQ(counts["copy copy gradients"], 2);
  EXPECT_EQ(counts["kernel update"], 2);
  EXPECT_EQ(counts["validation validation"], 1); // after step 10
  EXPECT_GE(counts["program score"], 1);
  EXPECT_EQ(counts["log record"], 1);
  EXPECT_GE(counts["save save state"], 1); // for the best validation
  // Events of the main thread are either nested or disjoint.
  for (size_t i = 0; i < main.size(); ++i)
    for (size_t j = i + 1; j < main.size() && main[j].begin < main[i].end - 2e-3; ++j)
      EXPECT_LE(main[j].end, main[i].end + 2e-3) << main[i].what << ", " << main[j].what;
}

TEST_F(TrainRun, TracesWhatThereIs) {
  // A run that ends early writes the steps that were reached, or warns that none was.
  TrainOptions early = options("early", -1);
  early.length.epochs = 1;
  early.trace.file = file("early.json");
  early.trace.first = 2;
  early.trace.last = 1000;
  ASSERT_EQ(run(early), "");
  EXPECT_NE(readFile(early.trace.file).find("\"step 2\""), std::string::npos);
  early.out = file("later");
  early.trace.file = file("later.json");
  early.trace.first = 1000;
  testing::internal::CaptureStderr();
  ASSERT_EQ(run(early), "");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("later.json: the run ended before step 1000"),
            std::string::npos);
  EXPECT_FALSE(exists(early.trace.file));

  TrainOptions late = options("early", 20);
  late.resume = true;
  late.trace.file = file("late.json");
  late.trace.first = late.trace.last = 2;
  EXPECT_NE(run(late).find("--trace-steps 2:2: the run continues after step "), std::string::npos);
  late.trace.first = late.trace.last = 1000;
  late.trace.file = file("nowhere/late.json");
  EXPECT_NE(run(late).find("nowhere/late.json"), std::string::npos);

  std::string message;
  for (const char *steps :
       {"", "5", "5:", ":5", "0:5", "5:4", "5:6:7", "5 :6", "5:6x", "-1:6", "99999999999999999999:1", "21:22"}) {
    EXPECT_EQ(command({"--source", file("a"), "--target", file("b"), "--out", file("x"), "--format", "ids", "--steps",
                       "20", "--trace", file("x.json"), "--trace-steps", steps},
                      &message),
              2)
        << steps;
    EXPECT_NE(message.find("--trace-steps"), std::string::npos) << message;
  }
  EXPECT_EQ(command({"--source", file("a"), "--target", file("b"), "--out", file("x"), "--format", "ids",
                     "--trace-steps", "1:2"},
                    &message),
            2);
  EXPECT_NE(message.find("--trace (with --trace-steps)"), std::string::npos) << message;
  EXPECT_FALSE(exists(file("x")));
}

TEST_F(TrainRun, SeedsAndDataMatter) {
  ASSERT_EQ(run(options("one", 20)), "");
  TrainOptions other = options("other", 20);
  other.seed = 2;
  ASSERT_EQ(run(other), "");
  EXPECT_NE(weightsOf("one"), weightsOf("other"));
}

TEST_F(TrainRun, AccumulatingEqualsOneLargeBatch) {
  // All pairs as one batch, or as several batches of one step: the same gradient up to rounding and the order of sums.
  TrainOptions large = options("large", 1), small = options("small", 1);
  large.batches.tokens = 100000;
  large.update.clipNorm = small.update.clipNorm = 0;
  small.batches.tokens = 200;
  small.batches.accumulate =
      epochBatches(Corpus(small.data.text, {Vocabulary(V), Vocabulary(V)}, tableModel(), Format::Ids), 200, 1, 0)
          .size();
  ASSERT_GT(small.batches.accumulate, 2);
  ASSERT_EQ(run(large), "");
  ASSERT_EQ(run(small), "");
  auto moments = [&](const std::string &out) {
    StoredTensor tensor = readSafetensors(file(out) + "/state/training.safetensors").at("moment1.table.weight");
    return std::vector<float>(reinterpret_cast<float *>(tensor.bytes.data()),
                              reinterpret_cast<float *>(tensor.bytes.data()) + V * V);
  };
  std::vector<float> a = moments("large"), b = moments("small");
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], 1e-6);
}

TEST_F(TrainRun, PreparedDataTrainsToTheSameBytes) {
  auto prepared = [&](TrainOptions options, const std::string &name) {
    prepareIds(options.data.text, file(name), 2);
    options.data.pairs = {file(name)};
    options.data.text = {};
    return options;
  };
  ASSERT_EQ(run(validated(options("text", 60))), "");
  const TrainOptions whole = prepared(validated(options("shard", 60)), "pairs");
  ASSERT_EQ(run(whole), "");
  EXPECT_EQ(weightsOf("text"), weightsOf("shard"));
  EXPECT_EQ(weightsOf("text", "best.safetensors"), weightsOf("shard", "best.safetensors"));

  // Started with text and resumed with pairs prepared from it, but not with other data.
  ASSERT_EQ(run(validated(options("both", 30))), "");
  TrainOptions rest = whole;
  rest.out = file("both");
  rest.resume = true;
  ASSERT_EQ(run(rest), "");
  EXPECT_EQ(weightsOf("text"), weightsOf("both"));
  write("a", 17, 150);
  rest = prepared(options("both", 90), "pairs");
  rest.resume = true;
  EXPECT_NE(run(rest).find("other training data"), std::string::npos);

  // An existing file stays if its replacement fails.
  const std::string before = readFile(file("pairs"));
  write("a", 17, 149);
  TrainOptions unequal = options("none", 1);
  EXPECT_THROW(prepared(unequal, "pairs"), Error);
  EXPECT_EQ(readFile(file("pairs")), before);
  for (const fs::directory_entry &entry : fs::directory_iterator(folder))
    EXPECT_EQ(entry.path().filename().string().find(".partial."), std::string::npos) << entry.path();
}

TEST_F(TrainRun, LossesAreWeighted) {
  auto weighted = [&](TrainOptions options, const std::function<double(int)> &weight) {
    options.data.text.weights = {options.out + ".weights"};
    std::ofstream stream(options.out + ".weights");
    for (int i = 0; i < 150; ++i)
      stream << weight(i) << '\n';
    return options;
  };
  auto some = [](int i) { return i * 7 % 5 / 2.0; };
  auto all = [](double weight) { return [weight](int) { return weight; }; };

  // Weights of 1 change nothing, and a run may leave them out.
  ASSERT_EQ(run(validated(options("none", 60))), "");
  ASSERT_EQ(run(weighted(validated(options("ones", 30)), all(1))), "");
  TrainOptions rest = validated(options("ones", 60));
  rest.resume = true;
  ASSERT_EQ(run(rest), "");
  EXPECT_EQ(weightsOf("none"), weightsOf("ones"));
  EXPECT_EQ(weightsOf("none", "best.safetensors"), weightsOf("ones", "best.safetensors"));

  // Others do, in the same way after a resume and from prepared pairs. They belong to the data.
  const TrainOptions whole = weighted(validated(options("whole", 60)), some);
  ASSERT_EQ(run(whole), "");
  EXPECT_NE(weightsOf("whole"), weightsOf("none"));
  TrainOptions parts = whole;
  parts.out = file("parts");
  parts.length.steps = 33;
  ASSERT_EQ(run(parts), "");
  parts.length.steps = 60;
  parts.resume = true;
  TrainOptions other = weighted(parts, [&](int i) { return some(i + 1); });
  EXPECT_NE(run(other).find("other training data"), std::string::npos);
  prepareIds(whole.data.text, file("pairs"), 2);
  parts.data.text = {};
  parts.data.pairs = {file("pairs")};
  ASSERT_EQ(run(parts), "");
  EXPECT_EQ(weightsOf("whole"), weightsOf("parts"));

  // With weights of 0, nothing is learned.
  ASSERT_EQ(run(options("first", 0)), "");
  ASSERT_EQ(run(weighted(options("zeros", 20), all(0))), "");
  EXPECT_EQ(readSafetensors(file("zeros/last.safetensors")).at("table.weight").bytes,
            readSafetensors(file("first/last.safetensors")).at("table.weight").bytes);

  // The loss of training is weighted; its nll and validations are not.
  auto logged = [&](TrainOptions options) {
    options.rate.rate = 1e-30;
    EXPECT_EQ(run(validated(options)), "");
    return readLog(options.out + "/train.jsonl");
  };
  const std::vector<nlohmann::json> once = logged(options("once", 20)),
                                    twice = logged(weighted(options("twice", 20), all(2)));
  ASSERT_EQ(once.size(), twice.size());
  for (size_t i = 0; i < once.size(); ++i) {
    for (const char *name : {"nll", "ppl", "valid_loss", "valid_nll", "tokens"})
      EXPECT_EQ(once[i].contains(name) ? once[i][name] : nlohmann::json(),
                twice[i].contains(name) ? twice[i][name] : nlohmann::json())
          << name;
    if (once[i].contains("loss")) {
      EXPECT_EQ(2 * once[i]["loss"].get<double>(), twice[i]["loss"].get<double>());
    }
  }
}

TEST_F(TrainRun, GoesOnInTheMiddleOfLargeData) {
  const int64_t pairs = poolBlocks * blockPairs + 1000; // two pools
  for (const char *name : {"la", "lb"}) {
    std::ofstream stream(file(name));
    for (int64_t i = 0; i < pairs; ++i)
      stream << 4 + i % 8 << (i % 3 ? " 5\n" : "\n");
  }
  prepareIds({{file("la")}, {file("lb")}, {}}, file("pairs"), 1);
  auto large = [&](const std::string &out, int64_t steps) {
    TrainOptions result = options(out, steps);
    result.data.text = {};
    result.data.pairs = {file("pairs")};
    result.batches.tokens = 30000;
    result.saves.every = 1000;
    return result;
  };
  TrainOptions epoch = large("epoch", -1);
  epoch.length.epochs = 1;
  ASSERT_EQ(run(epoch), "");
  const Vocabulary ids(V);
  const Corpus corpus({file("pairs")}, {ids, ids}, tableModel());
  const auto steps = static_cast<int64_t>(epochBatches(corpus, 30000, 1, 0).size());
  const auto first = static_cast<int64_t>(poolBatches(corpus, 30000, 1, 0, 0).size());
  EXPECT_EQ(readLog(file("epoch/train.jsonl")).back()["step"], steps);
  ASSERT_LT(first, steps);
  ASSERT_EQ(run(large("whole", steps + 3)), "");
  for (int64_t stop : {first - 2, first, first + 2, steps}) {
    const std::string out = "stopped" + std::to_string(stop);
    ASSERT_EQ(run(large(out, stop)), "");
    TrainOptions rest = large(out, steps + 3);
    rest.resume = true;
    ASSERT_EQ(run(rest), "");
    EXPECT_EQ(weightsOf(out), weightsOf("whole")) << stop;
  }
}

TEST_F(TrainRun, CorporaAreMixed) {
  write("c", 5, 20);
  write("d", 6, 20);
  auto mixed = [&](const std::string &out, int64_t steps) {
    TrainOptions result = options(out, steps);
    result.data.text = {{file("a"), file("c")}, {file("b"), file("d")}, {}};
    result.data.corpusWeights = {1, 3};
    return result;
  };
  ASSERT_EQ(run(mixed("whole", 60)), "");
  TrainOptions other = mixed("plain", 60);
  other.data.corpusWeights.clear();
  ASSERT_EQ(run(other), "");
  EXPECT_NE(weightsOf("plain"), weightsOf("whole"));
  other = mixed("other", 60);
  other.data.corpusWeights = {1, 4};
  ASSERT_EQ(run(other), "");
  EXPECT_NE(weightsOf("other"), weightsOf("whole"));
  other = mixed("warm", 60);
  other.data.corpusWeights.clear();
  other.data.corpusTemperature = 5;
  ASSERT_EQ(run(other), "");
  EXPECT_NE(weightsOf("warm"), weightsOf("whole"));

  // Stopped in the middle of an epoch, and resumed with files of pairs.
  for (const char *side : {"a", "c"})
    prepareIds({{file(side)}, {file(side == std::string("a") ? "b" : "d")}, {}}, file(std::string("pairs.") + side), 1);
  ASSERT_EQ(run(mixed("halves", 23)), "");
  TrainOptions rest = mixed("halves", 60);
  rest.data.text = {};
  rest.data.pairs = {file("pairs.a"), file("pairs.c")};
  rest.resume = true;
  TrainOptions wrong = rest;
  wrong.data.corpusWeights = {1, 4};
  EXPECT_NE(run(wrong).find("was begun with --corpus-weight 1 3 of corpora of 150 20 pairs; give the same"),
            std::string::npos);
  wrong.data.corpusWeights.clear();
  EXPECT_NE(run(wrong).find("was begun with --corpus-weight 1 3 of"), std::string::npos);
  ASSERT_EQ(run(rest), "");
  EXPECT_EQ(weightsOf("halves"), weightsOf("whole"));

  const std::vector<std::string> both = {"--source", file("a"), file("c"),  "--target", file("b"), file("d"),
                                         "--out",    file("x"), "--format", "ids",      "--steps", "1"};
  auto refused = [&](std::vector<std::string> more) {
    std::string message;
    more.insert(more.end(), both.begin(), both.end());
    EXPECT_EQ(command(more, &message), 2);
    return message;
  };
  EXPECT_NE(refused({"--corpus-weight", "1", "2", "3"}).find("expected a number for each file: 2, but 3 were given"),
            std::string::npos);
  EXPECT_NE(refused({"--corpus-weight", "1", "2", "--corpus-temperature", "5"})
                .find("--corpus-temperature excludes --corpus-weight"),
            std::string::npos);
  EXPECT_NE(refused({"--source", file("a"), "--corpus-temperature", "5"})
                .find("expected a --target for each --source, but 3 and 2 were given"),
            std::string::npos);
  std::string message;
  EXPECT_EQ(command({"--source", file("a"), "--target", file("b"), "--out", file("x"), "--format", "ids",
                     "--corpus-temperature", "5"},
                    &message),
            2);
  EXPECT_NE(message.find("there is only one corpus"), std::string::npos) << message;
}

TEST_F(TrainRun, ZeroStepsLeaveTheFirstWeights) {
  ASSERT_EQ(run(options("none", 0)), "");
  EXPECT_EQ(readSafetensors(file("none/last.safetensors")).at("table.weight").shape, (std::vector<int64_t>{V, V}));
}

TEST_F(TrainRun, KeepsAndAverages) {
  TrainOptions averaged = options("out", 100);
  averaged.saves.keep = 2;
  averaged.saves.average = 3;
  ASSERT_EQ(run(averaged), "");
  EXPECT_EQ(RunFolder(file("out")).keptSteps(), (std::vector<int64_t>{60, 80, 100}));
  auto value = [&](const std::string &name) {
    return *reinterpret_cast<float *>(readSafetensors(file("out/") + name).at("table.weight").bytes.data());
  };
  double mean =
      (double(value("step-60.safetensors")) + value("step-80.safetensors") + value("step-100.safetensors")) / 3;
  EXPECT_FLOAT_EQ(value("average.safetensors"), static_cast<float>(mean));
  EXPECT_EQ(value("best.safetensors"), value("average.safetensors"));
  EXPECT_EQ(value("last.safetensors"), value("step-100.safetensors"));
}

// The files are those of the best validations in the log, and a run that was killed ends with the same ones.
TEST_F(TrainRun, KeepsTheBest) {
  auto wavering = [&](const std::string &out, int64_t steps) {
    TrainOptions result = validated(options(out, steps));
    result.validation.every = 7;
    result.rate.rate = 1; // so that some validations are worse than the one before
    result.rate.warmup = 0;
    result.saves.keepBest = 3;
    return result;
  };
  auto bestOf = [&](const std::string &out) {
    std::map<std::string, std::string> files;
    for (const fs::directory_entry &entry : fs::directory_iterator(file(out)))
      if (const std::string name = entry.path().filename().string(); name.starts_with("best-"))
        files[name] = readFile(entry.path().string());
    return files;
  };
  ASSERT_EQ(run(wavering("whole", 100)), "");
  std::vector<std::pair<double, int64_t>> losses;
  for (const nlohmann::json &record : readLog(file("whole/train.jsonl")))
    if (record.contains("valid_nll"))
      losses.emplace_back(record["valid_nll"], record["step"]);
  ASSERT_EQ(losses.size(), 15u);
  EXPECT_FALSE(std::ranges::is_sorted(losses, std::greater()));
  std::ranges::sort(losses);
  const std::map<std::string, std::string> whole = bestOf("whole");
  ASSERT_EQ(whole.size(), 3u);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(whole.contains("best-" + std::to_string(losses[i].second) + ".safetensors")) << losses[i].second;
  EXPECT_EQ(whole.at("best-" + std::to_string(losses[0].second) + ".safetensors"),
            weightsOf("whole", "best.safetensors"));

  // Stopped, and killed after the last save: the folder holds files that belong to the state, and some of later
  // validations.
  for (int64_t stop : {21, 50, 65}) {
    const std::string out = "parts" + std::to_string(stop);
    TrainOptions part = wavering(out, stop);
    ASSERT_EQ(run(part), "");
    const std::map<std::string, std::string> saved = bestOf(out);
    fs::copy(file(out) + "/state", file("state"), fs::copy_options::recursive);
    part.length.steps = 100;
    part.resume = true;
    ASSERT_EQ(run(part), "");
    EXPECT_EQ(bestOf(out), whole) << stop;
    for (const auto &[name, bytes] : saved)
      writeFile(file(out) + "/" + name, bytes);
    fs::remove_all(file(out) + "/state");
    fs::rename(file("state"), file(out) + "/state");
    ASSERT_EQ(run(part), "");
    EXPECT_EQ(bestOf(out), whole) << stop;
  }

  // A smaller --keep-best deletes files.
  TrainOptions fewer = wavering("whole", 101);
  fewer.resume = true;
  fewer.saves.keepBest = 1;
  ASSERT_EQ(run(fewer), "");
  EXPECT_EQ(bestOf("whole").size(), 1u);
}

// The average of the weights is an additional state that does not affect the run; validations use it.
TEST_F(TrainRun, AveragesWhileItTrains) {
  auto averaging = [&](const std::string &out, int64_t steps) {
    TrainOptions result = validated(options(out, steps));
    result.saves.every = 1;
    result.saves.keep = 1000;
    result.saves.keepBest = 2;
    result.update.optimizer = findOptimizer("adam", true);
    result.update.settings.averageDecay = 0.7;
    return result;
  };
  auto floats = [&](const std::string &name, const std::string &tensor = "table.weight") {
    const StoredTensor stored = readSafetensors(file(name)).at(tensor);
    const auto *first = reinterpret_cast<const float *>(stored.bytes.data());
    return std::vector<float>(first, first + V * V);
  };
  ASSERT_EQ(run(averaging("whole", 50)), "");
  TrainOptions plain = averaging("plain", 50);
  plain.update.optimizer = findOptimizer("adam");
  ASSERT_EQ(run(plain), "");
  EXPECT_EQ(weightsOf("whole"), weightsOf("plain"));
  EXPECT_FALSE(fs::exists(file("plain/ema.safetensors")));
  ASSERT_EQ(run(options("first", 0)), "");
  std::vector<float> first = floats("first/last.safetensors");
  std::vector<double> expected(first.begin(), first.end());
  for (int step = 1; step <= 50; ++step) {
    const std::vector<float> weights = floats("whole/step-" + std::to_string(step) + ".safetensors");
    const double keep = std::min(0.7, (1.0 + step) / (10.0 + step));
    for (int64_t i = 0; i < V * V; ++i)
      expected[i] = keep * expected[i] + (1 - keep) * weights[i];
  }
  const std::vector<float> average = floats("whole/ema.safetensors"), last = floats("whole/last.safetensors");
  double largest = 0;
  for (int64_t i = 0; i < V * V; ++i) {
    EXPECT_NEAR(average[i], expected[i], 1e-5) << i;
    largest = std::max<double>(largest, std::abs(average[i] - last[i]));
  }
  EXPECT_GT(largest, 1e-3);
  EXPECT_EQ(floats("whole/state/training.safetensors", "average.table.weight"), average);
  EXPECT_EQ(floats("whole/state/training.safetensors", "weights.table.weight"), last);
  // Here the loss decreases to the end, and it is the loss of the average.
  EXPECT_EQ(floats("whole/best.safetensors"), average);
  EXPECT_EQ(floats("whole/best-50.safetensors"), average);
  TrainOptions check = validated(options("check", 0));
  check.init = file("whole/ema.safetensors");
  ASSERT_EQ(run(check), "");
  EXPECT_EQ(readLog(file("check/train.jsonl")).back()["valid_nll"],
            readLog(file("whole/train.jsonl")).back()["valid_nll"]);

  // Resumed.
  ASSERT_EQ(run(averaging("halves", 23)), "");
  TrainOptions rest = averaging("halves", 50);
  rest.resume = true;
  ASSERT_EQ(run(rest), "");
  for (const char *name : {"last.safetensors", "ema.safetensors", "best.safetensors", "best-40.safetensors"})
    EXPECT_EQ(weightsOf("whole", name), weightsOf("halves", name)) << name;
  rest.length.steps = 60;
  rest.update.optimizer = findOptimizer("adam");
  EXPECT_NE(run(rest).find("(--optimizer adam with --ema)"), std::string::npos) << run(rest);
  plain.length.steps = 60;
  plain.resume = true;
  plain.update.optimizer = findOptimizer("adam", true);
  EXPECT_NE(run(plain).find("(--optimizer adam without --ema)"), std::string::npos) << run(plain);

  // Without validation, best.safetensors is the average.
  TrainOptions unseen = averaging("unseen", 50);
  unseen.validation.text = {};
  unseen.saves.keepBest = 0;
  ASSERT_EQ(run(unseen), "");
  EXPECT_EQ(floats("unseen/best.safetensors"), average);
}

TEST_F(TrainRun, EpochsEndWhereTheDataEnds) {
  TrainOptions epochs = options("out", -1);
  epochs.length.epochs = 2;
  ASSERT_EQ(run(epochs), "");
  Corpus corpus(epochs.data.text, {Vocabulary(V), Vocabulary(V)}, tableModel(), Format::Ids);
  int64_t expected = epochBatches(corpus, 100, 1, 0).size() + epochBatches(corpus, 100, 1, 1).size();
  EXPECT_EQ(readLog(file("out/train.jsonl")).back()["step"], expected);
}

TEST_F(TrainRun, StopsEarly) {
  TrainOptions stopping = validated(options("out", 5000));
  stopping.rate.rate = 0.5; // overshoots
  stopping.validation.earlyStop = 3;
  ASSERT_EQ(run(stopping), "");
  EXPECT_LT(readLog(file("out/train.jsonl")).back()["step"], 5000);
}

TEST_F(TrainRun, NonFiniteLossNamesStepAndParameter) {
  TrainOptions exploding = options("out", 50);
  exploding.rate.rate = 1e30;
  exploding.rate.warmup = 0;
  std::string error = run(exploding);
  EXPECT_NE(error.find("step 2"), std::string::npos) << error;
  EXPECT_NE(error.find("the gradient of table.weight (decoder.head of model.json) is "), std::string::npos) << error;
}

TEST_F(TrainRun, HalvesTheRateWhereTheLossIsNoNumber) {
  auto exploding = [&](const std::string &out, int64_t steps) {
    TrainOptions result = validated(options(out, steps));
    result.rate.rate = 300; // logits whose exponentials overflow
    result.rate.warmup = 0;
    result.halveRate = true;
    return result;
  };
  TrainOptions stopping = exploding("stopping", 60);
  stopping.halveRate = false;
  EXPECT_NE(run(stopping), "");
  ASSERT_EQ(run(exploding("whole", 60)), "");
  double scale = 1;
  for (const auto &record : readLog(file("whole/train.jsonl")))
    if (record.contains("not_finite_step")) {
      EXPECT_EQ(record["rate_scale"], scale / 2);
      EXPECT_GT(record["not_finite_step"], record["step"]);
      scale = record["rate_scale"];
    } else if (record.contains("lr")) {
      EXPECT_EQ(record["lr"], 300 * scale);
    }
  EXPECT_LT(scale, 0.5);
  Metadata metadata;
  readSafetensors(file("whole/state/training.safetensors"), &metadata);
  const Progress progress = progressOf(metadata["progress"]);
  EXPECT_EQ(progress.rateScale, scale);
  EXPECT_EQ(progress.step, 60);
  const StoredTensor weights = readSafetensors(file("whole/last.safetensors")).at("table.weight");
  for (int64_t i = 0; i < V * V; ++i)
    EXPECT_TRUE(std::isfinite(reinterpret_cast<const float *>(weights.bytes.data())[i]));

  // A run that is stopped after it has gone back continues as the same run.
  for (int64_t stop : {1, 2, 20, 45}) {
    const std::string out = "stopped" + std::to_string(stop);
    ASSERT_EQ(run(exploding(out, stop)), "");
    TrainOptions rest = exploding(out, 60);
    rest.resume = true;
    ASSERT_EQ(run(rest), "");
    EXPECT_EQ(weightsOf(out), weightsOf("whole")) << stop;
  }

  TrainOptions hopeless = exploding("hopeless", 60);
  hopeless.rate.rate = 1e30;
  EXPECT_NE(run(hopeless).find("after the rate was halved ten times; what was saved at step 0 is intact"),
            std::string::npos)
      << run(hopeless);
}

TEST_F(TrainRun, FolderErrorsLoseNothing) {
  ASSERT_EQ(run(options("out", 20)), "");
  std::string before = weightsOf("out");
  EXPECT_NE(run(options("out", 20)).find("--resume"), std::string::npos);
  TrainOptions other = options("out", 40);
  other.resume = true;
  other.seed = 9;
  EXPECT_NE(run(other).find("--seed 1"), std::string::npos);
  other.seed = 1;
  write("a", 17, 150);
  EXPECT_NE(run(other).find("other training data"), std::string::npos);
  EXPECT_EQ(weightsOf("out"), before);
}

TEST_F(TrainRun, DamagedStateIsAnError) {
  ASSERT_EQ(run(options("out", 20)), "");
  std::string state = file("out/state/training.safetensors");
  writeFile(state, readFile(state).substr(0, 700));
  TrainOptions again = options("out", 40);
  again.resume = true;
  EXPECT_NE(run(again).find("training.safetensors"), std::string::npos);
}

TEST_F(TrainRun, FlagsAndConfiguration) {
  std::vector<std::string> flags = {
      "--source", file("a"),     "--target",   file("b"),        "--format", "ids",  "--batch-tokens",
      "100",      "--quiet",     "--schedule", "linear",         "--lr",     "0.02", "--betas",
      "0.8,0.9",  "--optimizer", "adamw",      "--weight-decay", "0.1"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return more;
  };
  ASSERT_EQ(command(with({"--out", file("one"), "--steps", "12"})), 0);
  nlohmann::json used = nlohmann::json::parse(readFile(file("one/config.json")));
  EXPECT_EQ(used["batch-tokens"], 100);
  EXPECT_EQ(used["schedule"], "linear");
  EXPECT_EQ(used["lr"], 0.02);
  EXPECT_EQ(used["steps"], 12);
  EXPECT_EQ(used["warmup"], 4000); // defaults are written too
  EXPECT_EQ(used["betas"], "0.8,0.9");
  EXPECT_FALSE(used.contains("epochs"));

  // Repeats the run from its own configuration, then continues it with --resume and no other flags.
  ASSERT_EQ(command({"--config", file("one/config.json"), "--out", file("two"), "--quiet"}), 0);
  EXPECT_EQ(weightsOf("one"), weightsOf("two"));
  ASSERT_EQ(command({"--out", file("one"), "--resume", "--epochs", "1", "--quiet"}), 0);
  EXPECT_GT(readLog(file("one/train.jsonl")).back()["step"], 12);
  used = nlohmann::json::parse(readFile(file("one/config.json")));
  EXPECT_EQ(used["epochs"], 1);
  EXPECT_FALSE(used.contains("steps"));
  EXPECT_EQ(used["betas"], "0.8,0.9"); // as the first run wrote it

  writeFile(file("wrong.json"), "{\"batch-token\": 3}");
  std::string message;
  EXPECT_EQ(command({"--config", file("wrong.json"), "--out", file("three")}, &message), 1);
  EXPECT_NE(message.find("did you mean 'batch-tokens'"), std::string::npos) << message;
  writeFile(file("wrong.json"), "{\"batch-tokens\": \"many\"}");
  EXPECT_EQ(command({"--config", file("wrong.json"), "--out", file("three")}, &message), 1);
  EXPECT_NE(message.find("wrong.json"), std::string::npos) << message;
}

TEST_F(TrainRun, WrongCommandLinesAreStatus2) {
  std::string message;
  EXPECT_EQ(command({"--source", file("a")}, &message), 2);
  EXPECT_NE(message.find("--target"), std::string::npos) << message;
  EXPECT_EQ(command({"--source", file("a"), "--target", file("b"), "--out", file("x")}, &message), 2);
  EXPECT_NE(message.find("--vocab"), std::string::npos) << message;
  EXPECT_EQ(command({"--schedule", "cosinus"}), 2);
  EXPECT_EQ(command({"--betas", "0.9,1.5", "--source", file("a"), "--target", file("b"), "--out", file("x"), "--format",
                     "ids"}),
            2);
  EXPECT_EQ(command({"--schedule", "cosine", "--minutes", "1", "--source", file("a"), "--target", file("b"), "--out",
                     file("x"), "--format", "ids"}),
            2);
  EXPECT_EQ(command({"--steps", "3", "--epochs", "3"}), 2);
  EXPECT_EQ(
      command({"--keep-best", "3", "--source", file("a"), "--target", file("b"), "--out", file("x"), "--format", "ids"},
              &message),
      2);
  EXPECT_NE(message.find("--valid-source"), std::string::npos) << message;
  for (const auto &[flag, value] : std::vector<std::pair<std::string, std::string>>{{"--batch-tokens", "0"},
                                                                                    {"--batch-tokens", "1e30"},
                                                                                    {"--minutes", "-1"},
                                                                                    {"--minutes", "nan"},
                                                                                    {"--lr", "0"},
                                                                                    {"--lr", "inf"},
                                                                                    {"--clip-norm", "nan"},
                                                                                    {"--clip-value", "-1"},
                                                                                    {"--keep-best", "-1"},
                                                                                    {"--accumulate", "1000000000"},
                                                                                    {"--save-every", "0"},
                                                                                    {"--warmup", "-1"},
                                                                                    {"--steps", "-1"},
                                                                                    {"--label-smoothing", "nan"},
                                                                                    {"--threads", "100000"}}) {
    EXPECT_EQ(
        command({flag, value, "--source", file("a"), "--target", file("b"), "--out", file("x"), "--format", "ids"},
                &message),
        2)
        << flag << " " << value;
    EXPECT_NE(message.find(flag), std::string::npos) << message;
  }
}

TEST_F(TrainRun, LogOfAnAbandonedPartIsDropped) {
  std::string log = file("log");
  writeFile(log, "{\"step\":10,\"loss\":1.0}\n{\"step\":20,\"loss\":2.0}\n{\"step\":30,\"lo");
  {
    TrainingLog(log, 10, -1).write({{"step", 11}});
  }
  EXPECT_EQ(readFile(log), "{\"step\":10,\"loss\":1.0}\n{\"step\":11}\n");
}

// Data that was not synced may have its size but no contents.
TEST_F(TrainRun, LogAfterALossOfPower) {
  const std::string log = file("log"), kept = "{\"step\":10}\n", lost = std::string(9, '\0');
  writeFile(log, kept + lost);
  TrainingLog(log, 10, 1).write({{"step", 20}});
  EXPECT_EQ(readFile(log), kept + "{\"step\":20}\n");
  writeFile(log, kept + lost + "\n{\"step\":30}\n");
  TrainingLog(log, 10, 1).write({{"step", 20}});
  EXPECT_EQ(readFile(log), kept + "{\"step\":20}\n");
  writeFile(log, lost);
  TrainingLog(log, 0, 0).write({{"step", 10}});
  EXPECT_EQ(readFile(log), kept);
}

// A run can only be resumed from an existing, intact state.
TEST_F(TrainRun, WeightsWithoutAStateAreNotTrainedOver) {
  ASSERT_EQ(run(validated(options("out", 20))), "");
  const std::string best = weightsOf("out", "best.safetensors"), last = weightsOf("out"),
                    log = readFile(file("out/train.jsonl"));
  fs::remove_all(file("out/state"));
  TrainOptions again = validated(options("out", 1));
  again.resume = true;
  EXPECT_NE(run(again).find("no state/ to continue from"), std::string::npos);
  EXPECT_EQ(weightsOf("out", "best.safetensors"), best);
  EXPECT_EQ(weightsOf("out"), last);
  EXPECT_EQ(readFile(file("out/train.jsonl")), log);
}

// Weights are never saved before the state that they belong to: a run that is killed can always be resumed.
TEST_F(TrainRun, ValidationBeforeTheFirstSaveLeavesAState) {
  TrainOptions killed = validated(options("out", 100000));
  killed.validation.every = 5;
  killed.saves.every = 1000000;
  const pid_t child = fork();
  if (child == 0) {
    try {
      train(killed, "{}\n");
    } catch (...) {
    }
    _exit(0);
  }
  for (int i = 0; i < 1000 && !exists(file("out/best.safetensors")); ++i)
    usleep(1000);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_TRUE(exists(file("out/best.safetensors")));
  killed.resume = true;
  killed.length.steps = 20;
  EXPECT_EQ(run(killed), "");
}

TEST_F(TrainRun, OneRunAFolder) {
  TrainOptions first = options("out", 1000000);
  const pid_t child = fork();
  if (child == 0) {
    try {
      train(first, "{}\n");
    } catch (...) {
    }
    _exit(0);
  }
  for (int i = 0; i < 1000 && !exists(file("out/state/training.safetensors")); ++i)
    usleep(1000);
  TrainOptions second = first;
  const std::string holder = "another training run uses this folder: process " + std::to_string(child) + " on ";
  EXPECT_NE(run(second).find(holder), std::string::npos) << run(second);
  second.resume = true;
  EXPECT_NE(run(second).find(holder), std::string::npos);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, WNOHANG), 0) << "the first run ended";
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  second.length.steps = 20;
  EXPECT_EQ(run(second), "");
  EXPECT_FALSE(exists(file("out/train.lock")));
}

TEST_F(TrainRun, OtherPeoplesFilesStay) {
  ASSERT_EQ(run(options("out", 20)), "");
  std::ofstream(file("out/thesis.partial.tex")) << "chapter 1";
  TrainOptions more = options("out", 40);
  more.resume = true;
  ASSERT_EQ(run(more), "");
  EXPECT_EQ(readFile(file("out/thesis.partial.tex")), "chapter 1");
}

TEST_F(TrainRun, LogsReplaceNoFile) {
  const std::string corpus = readFile(file("a"));
  TrainOptions logged = options("out", 10);
  logged.log = file("a");
  EXPECT_NE(run(logged).find("/a: is not empty; give a new file to --log"), std::string::npos);
  EXPECT_EQ(readFile(file("a")), corpus);
  ASSERT_EQ(run(options("other", 10)), "");
  logged = options("other", 20);
  logged.resume = true;
  logged.log = file("a");
  EXPECT_NE(run(logged).find("/a:1: not a record that train writes"), std::string::npos);
  EXPECT_EQ(readFile(file("a")), corpus);
  writeFile(file("other/train.jsonl"), "{\"step\":\"x\"}\n{\"step\":10}\n");
  logged.log.clear();
  EXPECT_NE(run(logged).find("train.jsonl:1: not a record that train writes"), std::string::npos);
}

// A state that cannot be trained from is not saved, and one that leads to divergence is replaced by the previous one.
TEST_F(TrainRun, DivergedStatesDoNotReplaceGoodOnes) {
  TrainOptions zero = options("zero", 1);
  zero.update.settings.epsilon = 0; // 0/0 if a gradient is 0
  zero.update.smoothing = 0;
  std::string error = run(zero);
  EXPECT_NE(error.find("step 1: 'weights.table.weight' holds NaN or infinity"), std::string::npos) << error;
  EXPECT_FALSE(exists(file("zero/last.safetensors")));
  EXPECT_FALSE(exists(file("zero/state")));

  ASSERT_EQ(run(options("out", 20)), "");
  TrainOptions diverging = options("out", 40);
  diverging.resume = true;
  diverging.rate.rate = 1e30;
  diverging.rate.warmup = 0;
  diverging.saves.every = 1;
  error = run(diverging);
  EXPECT_NE(error.find("step 22: the loss is "), std::string::npos) << error;
  EXPECT_NE(error.find("saved at step 21 led to this and is discarded; what was saved at step 20 is intact"),
            std::string::npos)
      << error;
  TrainOptions good = options("out", 40);
  good.resume = true;
  ASSERT_EQ(run(good), "");
  ASSERT_EQ(run(options("whole", 40)), "");
  EXPECT_EQ(weightsOf("out"), weightsOf("whole"));
}

TEST_F(TrainRun, ADamagedStateGivesWayToTheOneBefore) {
  ASSERT_EQ(run(options("whole", 60)), "");
  ASSERT_EQ(run(options("out", 40)), "");
  const std::string state = file("out/state/training.safetensors");
  std::string bytes = readFile(state);
  bytes[bytes.size() - 5] ^= 1; // in the last of the moments: only the checksum reveals it
  writeFile(state, bytes);
  TrainOptions again = options("out", 60);
  again.resume = true;
  testing::internal::CaptureStderr();
  ASSERT_EQ(run(again), "");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("'moment2.table.weight' have the checksum"), std::string::npos) << said;
  EXPECT_EQ(weightsOf("out"), weightsOf("whole"));
}

// Every changed byte of a state is either refused or makes no difference.
TEST_F(TrainRun, ChangedStatesAreRefused) {
  ASSERT_EQ(run(options("out", 20)), "");
  const std::string state = file("out/state/training.safetensors"), whole = readFile(state);
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = whole;
    bytes[round % 2 ? random() % 1200 : random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    writeFile(state, bytes);
    Engine engine(1);
    RunFolder folder(file("out"));
    std::string said;
    try {
      folder.loadState(engine, said);
      ADD_FAILURE() << "round " << round;
    } catch (const Error &) {
    }
  }
}

TEST_F(TrainRun, ProgressThatNoRunWritesIsRefused) {
  ASSERT_EQ(run(options("out", 20)), "");
  const std::string state = file("out/state/training.safetensors");
  Metadata metadata;
  const Tensors tensors = readSafetensors(state, &metadata);
  const nlohmann::json good = nlohmann::json::parse(metadata["progress"]);
  std::vector<std::pair<std::string, std::string>> odd = {{"batch", "-1"},
                                                          {"step", "-7"},
                                                          {"epoch", "1e300"},
                                                          {"epoch", "2147483649"},
                                                          {"accumulate", "0"},
                                                          {"step", "2.5"},
                                                          {"batch_tokens", "\"x\""},
                                                          {"best_step", "1000"},
                                                          {"seed", "-1"},
                                                          {"seconds", "-1"},
                                                          {"batch", "100000"},
                                                          {"step", "null"},
                                                          {"validated_step", "99999999999999999999"},
                                                          {"kept_best", "[[21, 1]]"},
                                                          {"kept_best", "[[3]]"},
                                                          {"kept_best", "[[2.5, 1]]"},
                                                          {"kept_best", "[[-1, 1]]"}};
  for (const auto &[key, value] : odd) {
    nlohmann::json progress = good;
    progress[key] = nlohmann::json::parse(value);
    metadata["progress"] = progress.dump();
    metadata.erase("checksum");
    writeSafetensors(state, viewsOf(tensors), metadata);
    TrainOptions again = options("out", 40);
    again.resume = true;
    EXPECT_NE(run(again).find("damaged"), std::string::npos) << key << ": " << value;
  }
}

// best.safetensors holds the best weights, whether a run is interrupted, extended or averaged at its end.
TEST_F(TrainRun, TheBestStaysTheBest) {
  auto loss = [&](const std::string &out) {
    double best = HUGE_VAL;
    for (const nlohmann::json &record : readLog(file(out) + "/train.jsonl"))
      if (record.contains("valid_nll") && record["best"])
        best = record["valid_nll"];
    return best;
  };
  for (int64_t average : {0, 3}) {
    const std::string out = "out" + std::to_string(average);
    TrainOptions first = validated(options(out, 40));
    first.validation.every = 30;
    first.saves.average = average;
    ASSERT_EQ(run(first), "");
    const double before = loss(out);
    const std::string best = weightsOf(out, "best.safetensors"), log = readFile(file(out + "/train.jsonl"));
    ASSERT_LT(before, HUGE_VAL);
    // Nothing happens twice.
    first.resume = true;
    ASSERT_EQ(run(first), "");
    EXPECT_EQ(readFile(file(out + "/train.jsonl")), log);
    EXPECT_EQ(weightsOf(out, "best.safetensors"), best);
    // Worse weights do not replace it.
    first.length.steps = 60;
    first.update.optimizer = findOptimizer("adamw");
    first.update.settings.weightDecay = 100; // the weights decay to nothing
    ASSERT_EQ(run(first), "");
    EXPECT_EQ(weightsOf(out, "best.safetensors"), best);
    EXPECT_EQ(loss(out), before);
  }
}

// A signal saves and changes nothing else: no additional validation is counted and no additional weights are kept for
// averaging.
TEST_F(TrainRun, SignalsLeaveTheRunAsItWas) {
  TrainOptions whole = validated(options("whole", 3000));
  whole.validation.every = 500;
  whole.validation.earlyStop = 4;
  whole.saves.average = 3;
  whole.saves.every = 250;
  ASSERT_EQ(run(whole), "");
  TrainOptions stopped = whole;
  stopped.out = file("stopped");
  auto inode = [](const std::string &name) {
    struct stat info{};
    return stat(name.c_str(), &info) == 0 ? info.st_ino : 0;
  };
  for (int signal : {SIGTERM, SIGHUP, SIGINT, SIGTERM, SIGTERM}) {
    const ino_t before = inode(stopped.out + "/train.jsonl");
    const pid_t child = fork();
    if (child == 0) {
      std::signal(SIGINT, SIG_DFL);
      int status = 1;
      try {
        train(stopped, "{}\n");
        status = 0;
      } catch (...) {
      }
      _exit(status);
    }
    for (int i = 0; i < 5000 && inode(stopped.out + "/train.jsonl") == before; ++i)
      usleep(1000); // the log is rewritten just before the first step
    usleep(50000);
    kill(child, signal);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << signal << ": " << status;
    stopped.resume = true;
  }
  ASSERT_EQ(run(stopped), "");
  for (const char *name : {"last.safetensors", "best.safetensors", "average.safetensors"})
    EXPECT_EQ(weightsOf("whole", name), weightsOf("stopped", name)) << name;
  auto validations = [&](const std::string &out) {
    std::vector<std::pair<int64_t, double>> found;
    for (const nlohmann::json &record : readLog(file(out) + "/train.jsonl"))
      if (record.contains("valid_nll"))
        found.emplace_back(record["step"], record["valid_nll"]);
    return found;
  };
  EXPECT_EQ(validations("whole"), validations("stopped"));
}

TEST_F(TrainRun, FilesSayWhatTheyAre) {
  ASSERT_EQ(run(options("out", 20)), "");
  Metadata metadata;
  readSafetensors(file("out/last.safetensors"), &metadata);
  EXPECT_EQ(metadata["model_hash"], "1");
  EXPECT_EQ(metadata["model"], "table");
  EXPECT_EQ(metadata["crc32c.table.weight"].size(), 8u);
}

TEST(Duration, HoursMinutesSeconds) {
  EXPECT_EQ(duration(5), "0:05");
  EXPECT_EQ(duration(65.4), "1:05");
  EXPECT_EQ(duration(3725), "1:02:05");
}

} // namespace
