// `selfcheck`: checks gradients against finite differences, that results do not depend on batches or threads, and a
// GPU's kernels against the CPU's.
#include "decode/ModelOptions.h"
#include "decode/Score.h"
#include "decode/Search.h"
#include "engine/Safetensors.h"
#include "measure/Commands.h"
#include "measure/KernelCheck.h"
#include "measure/Promises.h"
#include "measure/RandomSentences.h"
#include "plan/Memory.h"
#include "plan/Programs.h"
#include "train/Update.h"
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>

namespace xfc {

namespace {

struct SelfcheckOptions {
  uint64_t seed = 1;
  int threads = 2;
  DeviceChoice device;
  bool quiet = false, kernels = false, promises = false;
  std::string kernel;      // with --kernels: only this one; empty: all
  int64_t batchTokens = 0; // with --kernels; 0: five sentences
  int64_t mixes = 200;     // with --promises
};

class Selfcheck {
public:
  explicit Selfcheck(const SelfcheckOptions &options)
      : options(options), engine(options.threads, options.device), module(engine.module()) {
    initializeParameters(engine, options.seed);
    disturb(engine);
  }

  // Returns whether everything holds.
  bool run() {
    module.requireTranslator();
    module.programs.readAll(); // the checks do not run all of them
    std::printf("%-44s %12s %12s\n", "check", "error", "allowed");
    if (options.kernels) {
      checkKernels();
      std::printf("%s\n", verdict().c_str());
      return failures == 0;
    }
    sentences = randomSentences(module, options.seed);
    if (engine.has(programs::lossAndGradients) && engine.has(programs::score))
      checkGradients();
    if (engine.has(programs::lossAndGradients))
      checkThreads();
    if (engine.has(programs::score))
      checkBatches();
    if (engine.has(programs::forwardAttention) && engine.has(programs::forward))
      checkFusion();
    if (engine.has(programs::decodeStep))
      checkDecoding();
    std::printf("%s\n", verdict().c_str());
    return failures == 0;
  }

private:
  std::string verdict() const {
    return failures == 0 ? "everything holds"
                         : std::to_string(failures) + (failures == 1 ? " check failed" : " checks failed");
  }

  bool wide() const { return module.type == DType::F64; }
  bool rounds() const { return module.compute == "bf16"; }
  // Whether a CPU stores rows in bf16, as it does where tiles multiply them. The gradients of such rows are rounded
  // too, and differ by up to twice as much from differences of the loss.
  bool storesRounded() const {
    const auto isRounded = [](const LaunchResult &result) { return result.type == DType::BF16; };
    return engine.computingThreads() > 0 &&
           std::ranges::any_of(module.find(programs::lossAndGradients)->steps,
                               [&](const Step &step) { return std::ranges::any_of(step.results, isRounded); });
  }

  // Whether steps read keys and values that are rounded more than those of a whole translation.
  bool keepsRounded() const {
    const std::string type = cacheType(module);
    return type == "bf16" || type == "int8";
  }

  void report(const std::string &what, double error, double allowed) {
    const bool holds = error <= allowed; // false for NaN
    failures += !holds;
    if (!options.quiet || !holds)
      std::printf("%-44s %12.3g %12.3g%s\n", what.c_str(), error, allowed, holds ? "" : "  FAILED");
  }

  double get(const void *block, int64_t i) const {
    return wide() ? static_cast<const double *>(block)[i] : static_cast<const float *>(block)[i];
  }
  void set(Engine &to, int64_t i, double value) const {
    if (wide())
      static_cast<double *>(to.parameters())[i] = value;
    else
      static_cast<float *>(to.parameters())[i] = static_cast<float>(value);
  }

  // Biases of 0 and gains of 1 would hide mistakes.
  void disturb(Engine &to) const {
    std::mt19937 random(7);
    for (const Parameter &parameter : module.parameters)
      if (parameter.init == "zero" || parameter.init == "one")
        for (int64_t i = 0; i < elementsOf(parameter.shape); ++i)
          set(to, parameter.offset + i,
              get(to.parameters(), parameter.offset + i) + 0.2 * (random() / 4294967296.0 - 0.5));
    to.parametersChanged();
  }

  std::vector<int64_t> allPairs(const Corpus &corpus) const {
    std::vector<int64_t> pairs(corpus.size());
    for (size_t i = 0; i < pairs.size(); ++i)
      pairs[i] = static_cast<int64_t>(i);
    return pairs;
  }

  // Fills the gradients of `on`; returns the mean loss.
  double lossAndGradients(Engine &on, PairBatch &batch, bool dropout) const {
    batch.shape().training = dropout;
    batch.shape().dropout_key[0] = 11;
    batch.shape().dropout_key[1] = 1;
    Scalars smoothing(module, {0.1});
    batch.scaleLosses(1.0 / static_cast<double>(batch.labelCount()));
    on.run(programs::lossAndGradients, batch.shape(),
           batch.bindings(Binding{names::smoothing, smoothing.data()}, batch.lossScale()));
    return sumOfRows(on.output(programs::lossAndGradients, names::loss), batch.shape().sets[XFC_TARGET].rows) /
           static_cast<double>(batch.labelCount());
  }

  double meanLoss(PairBatch &batch) {
    engine.parametersChanged();
    Scalars smoothing(module, {0.1});
    engine.run(programs::score, batch.shape(), batch.bindings(Binding{names::smoothing, smoothing.data()}));
    return sumOfRows(engine.output(programs::score, names::loss), batch.shape().sets[XFC_TARGET].rows) /
           static_cast<double>(batch.labelCount());
  }

  // encoder.layers.3.ffn.in.weight -> encoder.layers.*.ffn.in.weight: the parameters that are moved together.
  static std::string kindOf(const std::string &name) {
    std::string kind;
    for (size_t i = 0; i < name.size(); ++i)
      if (!std::isdigit(static_cast<unsigned char>(name[i])) || (i > 0 && name[i - 1] != '.' && kind.back() != '*'))
        kind += name[i];
      else if (kind.empty() || kind.back() != '*')
        kind += '*';
    return kind;
  }

  // Where products round their operands to bf16, the loss is a step function of the parameters. Returns how much its
  // jumps disturb it: the standard deviation over neighbors that differ by up to one such rounding, without the
  // differences that gradients explain.
  double roundingOfLoss(PairBatch &batch, const std::vector<double> &gradients) {
    const std::vector<double> before = values(engine.parameters());
    std::mt19937 random(3);
    constexpr int neighbors = 8;
    double sum = 0, squares = 0;
    for (int n = 0; n < neighbors; ++n) {
      double explained = 0;
      for (int64_t i = 0; i < module.parameterElements; ++i) {
        const double moved = before[i] * (random() / 4294967296.0 - 0.5) / 128;
        set(engine, i, before[i] + moved);
        explained += gradients[i] * moved;
      }
      const double loss = meanLoss(batch) - explained;
      sum += loss;
      squares += loss * loss;
    }
    for (int64_t i = 0; i < module.parameterElements; ++i)
      set(engine, i, before[i]);
    engine.parametersChanged();
    return std::sqrt(std::max(0.0, squares - sum * sum / neighbors) / (neighbors - 1));
  }

  std::vector<double> values(const void *block) const {
    std::vector<double> all(module.parameterElements);
    for (int64_t i = 0; i < module.parameterElements; ++i)
      all[i] = get(block, i);
    return all;
  }

  // The slope of the loss along the gradient, and along a random half of its elements, must be what the gradient says.
  // It is measured by central differences over h and h/2, extrapolated to 0. The first h changes the loss enough for
  // this type to show it, and no parameter by more than its size. Where attention saturates within h, or activations
  // change their sign, the two differ by more than noise explains, and h is halved until they do not. In bf16 a
  // difference is the mean over steps in equal ratios from h / sqrt(2) to h sqrt(2), which averages noise, and leaves
  // the extrapolation as it is.
  void checkGradients() {
    const Corpus corpus(sentences.sources, sentences.targets, module);
    PairBatch batch;
    batch.assign(corpus, allPairs(corpus), module, true, {.smoothing = 0.1});
    lossAndGradients(engine, batch, false);
    const std::vector<double> gradients = values(engine.gradients());

    std::map<std::string, std::vector<const Parameter *>> kinds;
    for (const Parameter &parameter : module.parameters)
      kinds[kindOf(parameter.name)].push_back(&parameter);
    const double allowed = wide() ? 1e-4 : storesRounded() ? 0.12 : rounds() ? 0.05 : 3e-2;
    // The noise of the mean loss, 8 standard deviations: the extrapolated difference contains it twice, and dozens of
    // differences are compared.
    const int samples = rounds() ? 8 : 1;
    double noise = wide() ? 1e-13 : 4e-6, change = wide() ? 1e-5 : 1e-3; // the desired change of the loss
    if (rounds()) {
      noise = std::max(noise, 8 * roundingOfLoss(batch, gradients) / std::sqrt(samples));
      change = 10 * noise;
    }
    std::mt19937 random(static_cast<uint32_t>(options.seed));
    for (const auto &[kind, members] : kinds) {
      double worst = 0;
      for (int half = 0; half < 2; ++half) {
        std::vector<std::pair<int64_t, double>> direction; // element, slope
        double squares = 0, size = 0;
        for (const Parameter *parameter : members)
          for (int64_t i = 0; i < elementsOf(parameter->shape); ++i) {
            const int64_t at = parameter->offset + i;
            size += std::pow(get(engine.parameters(), at), 2);
            if (gradients[at] == 0 || (half && random() % 2))
              continue;
            direction.emplace_back(at, gradients[at]);
            squares += gradients[at] * gradients[at];
          }
        if (direction.empty())
          continue;
        const double slope = std::sqrt(squares);
        std::vector<double> before;
        before.reserve(direction.size());
        for (auto [at, gradient] : direction)
          before.push_back(get(engine.parameters(), at));
        auto lossAt = [&](double distance) {
          for (size_t i = 0; i < direction.size(); ++i)
            set(engine, direction[i].first, before[i] + distance * direction[i].second / slope);
          return meanLoss(batch);
        };
        auto difference = [&](double h) {
          double sum = 0;
          for (int i = 0; i < samples; ++i) {
            const double distance = h * std::exp2((i + 0.5) / samples - 0.5);
            sum += (lossAt(distance) - lossAt(-distance)) / (2 * distance);
          }
          return sum / samples;
        };
        double step = std::min(change / slope, std::sqrt(size));
        double coarse = difference(step), fine = difference(step / 2);
        for (int halvings = 0; halvings < 12 && std::abs(fine - coarse) > noise / (2 * step); ++halvings) {
          step /= 2;
          coarse = fine;
          fine = difference(step / 2);
        }
        lossAt(0);
        const double error = std::abs((4 * fine - coarse) / 3 - slope) / (slope + noise / step / allowed);
        worst = std::isfinite(error) ? std::max(worst, error) : error;
        if (!std::isfinite(error))
          break;
      }
      report("gradient " + kind, worst, allowed);
    }
    engine.parametersChanged();
  }

  // With dropout on, other thread counts must give the same bits; on a GPU, another engine must.
  void checkThreads() {
    const Corpus corpus(sentences.sources, sentences.targets, module);
    PairBatch batch;
    batch.assign(corpus, allPairs(corpus), module, true, {.smoothing = 0.1});
    const double loss = lossAndGradients(engine, batch, true);
    for (int threads : {1, 3}) {
      Engine other(threads, options.device);
      std::memcpy(other.parameters(), engine.parameters(), module.parameterElements * bytesOf(module.type));
      other.parametersChanged();
      const double otherLoss = lossAndGradients(other, batch, true);
      double differing = loss != otherLoss;
      for (int64_t i = 0; i < module.parameterElements; ++i)
        differing += get(engine.gradients(), i) != get(other.gradients(), i);
      report("gradients of " + std::to_string(threads) + " threads, values that differ", differing, 0);
    }
  }

  void checkBatches() {
    std::vector<double> together = score(engine, sentences.sources, sentences.targets, 1 << 20),
                        alone = score(engine, sentences.sources, sentences.targets, 1);
    double differing = 0;
    for (size_t i = 0; i < together.size(); ++i)
      differing += !(together[i] == alone[i]);
    report("scores alone and in a batch that differ", differing, 0);
  }

  // forward_attention computes attention in separate ops; forward uses the fused kernel. In bf16, an operand close to a
  // tie may round to the other neighbor, here and in decoding.
  void checkFusion() {
    std::vector<Sequence> sources, targets;
    for (const Ids &ids : sentences.sources)
      sources.push_back({ids, static_cast<int64_t>(ids.size()), 0});
    for (const Ids &ids : sentences.targets)
      targets.push_back({ids, static_cast<int64_t>(ids.size()), 0});
    Batch batch;
    batch.assign(sources, targets, module.pad, false);
    const Binding bindings[] = {{names::source, batch.ids(XFC_SOURCE).data()},
                                {names::target, batch.ids(XFC_TARGET).data()}};
    auto logits = [&](const char *program) {
      engine.run(program, batch.shape(), bindings);
      View view = engine.output(program, "logits");
      std::vector<double> values;
      for (int64_t row = 0; row < batch.shape().sets[XFC_TARGET].rows; ++row)
        for (int64_t v = 0; v < module.targetVocab; ++v)
          values.push_back(view.at(row, v));
      return values;
    };
    const std::vector<double> fused = logits(programs::forward), parts = logits(programs::forwardAttention);
    double error = 0, largest = 0;
    for (size_t i = 0; i < fused.size(); ++i) {
      const double difference = std::abs(fused[i] - parts[i]);
      error = std::isnan(difference) ? difference : std::max(error, difference);
      largest = std::max(largest, std::abs(parts[i]));
    }
    report("logits, fused against unfused attention", error / largest, wide() ? 1e-12 : rounds() ? 1e-2 : 2e-5);
  }

  // Translations do not depend on the batch, and their log-probabilities equal those of teacher forcing.
  void checkDecoding() {
    SearchOptions search;
    search.generation.beam = 2;
    search.generation.maxLength = 6;
    search.batchTokens = 1 << 20;
    std::vector<std::vector<Hypothesis>> together = xfc::search(engine, sentences.sources, search);
    search.batchTokens = 1;
    std::vector<std::vector<Hypothesis>> alone = xfc::search(engine, sentences.sources, search);
    double differing = 0, error = 0;
    std::vector<Ids> targets;
    for (size_t i = 0; i < together.size(); ++i) {
      differing += together[i][0].ids != alone[i][0].ids || together[i][0].score != alone[i][0].score;
      targets.push_back(together[i][0].ids);
    }
    report("translations alone and in a batch that differ", differing, 0);
    if (!engine.has(programs::score))
      return;
    std::vector<double> scored = score(engine, sentences.sources, targets, 1 << 20);
    for (size_t i = 0; i < scored.size(); ++i) {
      const double difference =
          std::abs(scored[i] - together[i][0].logProbability) / std::max(1.0, std::abs(scored[i]));
      error = std::isnan(difference) ? difference : std::max(error, difference);
    }
    report("step by step against all at once", error, wide() ? 1e-10 : keepsRounded() ? 2e-2 : rounds() ? 1e-2 : 1e-4);
  }

  // Compares every kernel of training and of unfused attention with the CPU's, from the same operands.
  void checkKernels() {
    Engine cpu(options.threads);
    std::memcpy(cpu.parameters(), engine.parameters(), module.parameterElements * bytesOf(module.type));
    cpu.parametersChanged();
    sentences = randomSentences(module, options.seed, 70, options.batchTokens);
    const Corpus corpus(sentences.sources, sentences.targets, module);
    PairBatch batch;
    batch.assign(corpus, allPairs(corpus), module, true, {.smoothing = 0.1});
    Scalars smoothing(module, {0.1});
    batch.scaleLosses(1.0 / static_cast<double>(batch.labelCount()));
    std::map<std::string, KernelDifference> worst;
    int64_t alone = 0;
    for (const char *program : {programs::lossAndGradients, programs::forwardAttention}) {
      if (!engine.has(program) || !cpu.has(program))
        continue;
      const auto bindings = batch.bindings(Binding{names::smoothing, smoothing.data()}, batch.lossScale());
      const KernelComparison comparison =
          compareKernels(cpu, engine, program, batch.shape(), bindings, rounds(), options.kernel);
      alone += comparison.alone;
      for (const KernelDifference &step : comparison.steps) {
        auto [known, isNew] = worst.try_emplace(step.kernel, step);
        if (!isNew && !(step.error <= known->second.error) && !std::isnan(known->second.error))
          known->second = step;
      }
    }
    if (worst.empty())
      throw Error("--kernel " + options.kernel +
                  ": none of the compared steps runs it; leave out --kernel to list all kernels");
    for (const auto &[kernel, difference] : worst) {
      report(kernel, difference.error, difference.allowed);
      if (!(difference.error <= difference.allowed))
        std::printf("FAILED: %s\n  run it alone: %s\n", difference.text().c_str(), commandFor(kernel).c_str());
    }
    std::printf("%zu kernels compared with the CPU's; %lld GPU steps without a CPU counterpart\n", worst.size(),
                static_cast<long long>(alone));
  }

  // The command that reproduces a result. It names no thread count, since that does not change the bits.
  std::string commandFor(const std::string &kernel) const {
    std::string command = "selfcheck --kernels --kernel " + kernel + " --device cuda";
    if (!options.device.cudaImage.empty())
      command += " --cuda-image " + options.device.cudaImage;
    if (options.batchTokens > 0)
      command += " --batch-tokens " + std::to_string(options.batchTokens);
    return command + " --seed " + std::to_string(options.seed);
  }

  const SelfcheckOptions &options;
  Engine engine;
  const Module &module;
  Sentences sentences;
  int failures = 0;
};

void run(const SelfcheckOptions &options) {
  if (options.kernels && options.device.device == "cpu")
    throw Error("--kernels: compares a GPU's kernels with the CPU's; it needs --device cuda");
  if (!options.kernels && (!options.kernel.empty() || options.batchTokens > 0))
    throw Error(std::string(options.kernel.empty() ? "--batch-tokens" : "--kernel") + ": needs --kernels");
  if (options.promises) {
    if (options.kernels)
      throw Error("--promises: cannot be combined with --kernels");
    if (!keepsPromises(options.seed, options.threads, options.device, options.mixes))
      throw Error("selfcheck failed: a promise of equal bits is broken on this machine; report the lines above");
    return;
  }
  if (!Selfcheck(options).run())
    throw Error("selfcheck failed: this executable computes wrong results on this machine; report the lines above");
}

} // namespace

void addSelfcheck(Command app) {
  Command command = app.addVerb(
      "selfcheck", "check gradients against finite differences, and that results do not depend on batches or threads",
      "translator selfcheck --promises");
  auto options = std::make_shared<SelfcheckOptions>();
  command.addOption("--seed", options->seed, "seed of weights and sentences").showDefault();
  command.addOption("--threads", options->threads, "number of threads")
      .within(1, 4096)
      .showDefault()
      .subject("Machine");
  addDevice(command, options->device);
  command.addFlag("--kernels", options->kernels,
                  "check only the GPU's kernels, one by one, against the CPU's; needs --device cuda");
  command.addOption("--kernel", options->kernel, "with --kernels: check only this one");
  command
      .addOption("--batch-tokens", options->batchTokens,
                 "with --kernels: minimum number of target tokens (default: five sentences)")
      .positive();
  CommandOption promises = command.addFlag("--promises", options->promises,
                                           "check only the promises of equal bits: from run to run, with any batch "
                                           "mates, for any number of threads, after a resume");
  command.addOption("--mixes", options->mixes, "with --promises: random batches to compare, for at most 30 seconds")
      .needs(promises)
      .within(int64_t(1), int64_t(1) << 40)
      .showDefault();
  command.addFlag("--quiet", options->quiet, "print only what fails");
  command.setWork([options] { run(*options); });
}

} // namespace xfc
