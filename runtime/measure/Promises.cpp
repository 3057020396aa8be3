// Checks the promises of bit-identical results on this machine.
#include "measure/Promises.h"
#include "decode/Search.h"
#include "device/cpu/CpuDevice.h"
#include "engine/Identity.h"
#include "engine/Safetensors.h"
#include "measure/RandomSentences.h"
#include "plan/Programs.h"
#include "support/Checksum.h"
#include "support/TemporaryFolder.h"
#include "train/Checkpoint.h"
#include "train/Update.h"
#include "xfc/abi.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

namespace xfc {
namespace {

class Promises {
public:
  Promises(uint64_t seed, int threads, const DeviceChoice &device, int64_t mixes)
      : seed(seed), threads(threads), device(device), mixes(mixes), engine(threads, device), module(engine.module()) {
    if (module.sourceVocab == 0 || !module.hasDecoder || module.targetVocab == 0)
      throw Error("model '" + module.model +
                  "': only models from tokens to tokens can check their promises; compare what forward gives instead");
    initializeParameters(engine, seed);
    engine.parametersChanged();
    sentences = randomSentences(module, seed, 20, 0, 24);
    for (const auto *side : {&sentences.sources, &sentences.targets})
      sequences.emplace_back(sequencesOf(*side));
  }

  bool run() {
    module.programs.readAll(); // the checks do not run all of them
    std::printf("%s\n%-58s %12s %12s\n", engine.device().name().c_str(), "promise", "compared", "differing");
    if (engine.has("loss_and_gradients"))
      checkRunsAndThreads();
    if (engine.has("loss_and_gradients") && engine.device().traits().hostMemory)
      checkRanks();
    if (engine.has("forward"))
      checkBatchMates();
    for (const std::string &type : module.computeTypes(programs::decodeStep))
      if (type == module.compute || type == "int8")
        checkTranslations(type);
    if (engine.computingThreads() > 0)
      checkInstructionSets();
    if (engine.has("loss_and_gradients") && engine.has("update"))
      checkResume();
    std::printf("%s\n", broken ? "a promise is broken" : "every promise is kept");
    return !broken;
  }

private:
  void report(const std::string &promise, int64_t compared, int64_t differing) {
    broken |= differing != 0;
    std::printf("%-58s %12lld %12lld%s\n", promise.c_str(), static_cast<long long>(compared),
                static_cast<long long>(differing), differing ? "  BROKEN" : "");
  }
  static void fingerprint(const std::string &what, uint32_t sum) {
    std::printf("  %s: crc32c %08x\n", what.c_str(), sum);
  }

  static std::vector<Sequence> sequencesOf(const std::vector<Ids> &side) {
    std::vector<Sequence> result;
    result.reserve(side.size());
    for (const Ids &ids : side)
      result.push_back({ids, static_cast<int64_t>(ids.size()), 0});
    return result;
  }

  std::string gradientsOf(Engine &on, StepObserver *observer = nullptr) const {
    const Corpus corpus(sentences.sources, sentences.targets, module);
    std::vector<int64_t> pairs(corpus.size());
    std::iota(pairs.begin(), pairs.end(), 0);
    PairBatch batch;
    batch.assign(corpus, pairs, module, true, {.smoothing = 0.1});
    batch.shape().dropout_key[0] = 11;
    batch.shape().dropout_key[1] = 1;
    Scalars smoothing(module, {0.1});
    batch.scaleLosses(1.0 / static_cast<double>(batch.labelCount()));
    on.run("loss_and_gradients", batch.shape(),
           batch.bindings(Binding{"smoothing", smoothing.data()}, batch.lossScale()), observer);
    return {static_cast<const char *>(on.gradients()), static_cast<size_t>(blockBytes())};
  }
  void copyParameters(Engine &to) {
    std::memcpy(to.parameters(), engine.parameters(), static_cast<size_t>(blockBytes()));
    to.parametersChanged();
  }
  int64_t blockBytes() const { return module.parameterElements * bytesOf(module.type); }
  int64_t differing(const std::string &a, const std::string &b) const {
    const size_t size = static_cast<size_t>(bytesOf(module.type));
    int64_t count = 0;
    for (size_t at = 0; at < a.size(); at += size)
      count += std::memcmp(a.data() + at, b.data() + at, size) != 0;
    return count;
  }

  void checkRunsAndThreads() {
    const std::string first = gradientsOf(engine), again = gradientsOf(engine);
    report("run to run: gradients, dropout on", module.parameterElements, differing(first, again));
    const int most = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    std::vector<int> counts = {1, 2, 3, most};
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    for (int count : counts) {
      Engine other(count, device);
      copyParameters(other);
      report("threads: gradients of another engine with " + std::to_string(count), module.parameterElements,
             differing(first, gradientsOf(other)));
    }
    fingerprint("gradients", crc32c(first));
  }

  // Copies gradients as soon as ranks would send them, while the backward pass still runs: they must be those that it
  // ends with. What an earlier pass has left is overwritten before, so that it cannot be taken for the result.
  void checkRanks() {
    const std::string whole = gradientsOf(engine);
    for (const Parameter &parameter : module.parameters)
      std::memset(static_cast<char *>(engine.gradients()) + parameter.offset * bytesOf(module.type), 0xFF,
                  static_cast<size_t>(elementsOf(parameter.shape) * bytesOf(module.type)));
    struct Sender : StepObserver {
      Sender(const Module &module, char *gradients)
          : sharding(module, 1, squarePart), element(bytesOf(module.type)), gradients(gradients),
            sent(static_cast<size_t>(module.parameterElements * element), '\0') {}
      void before(const ProgramRun &, int64_t step) override {
        for (; bucket < sharding.buckets().size() && sharding.buckets()[bucket].step <= step; ++bucket)
          send();
      }
      void send() {
        for (const Range &range : sharding.buckets()[bucket].shares[0])
          std::memcpy(sent.data() + range.begin * element, gradients + range.begin * element, range.size() * element);
      }
      const Sharding sharding;
      const int64_t element;
      const char *gradients;
      std::string sent;
      size_t bucket = 0;
    } sender(module, static_cast<char *>(engine.gradients()));
    gradientsOf(engine, &sender);
    for (; sender.bucket < sender.sharding.buckets().size(); ++sender.bucket)
      sender.send();
    report("ranks: gradients sent before the pass ends", module.parameterElements, differing(whole, sender.sent));
  }

  // The logits of sentences that run in one batch, as one string of bytes per sentence.
  std::vector<std::string> logitsOf(Engine &on, const std::vector<Sequence> &sources,
                                    const std::vector<Sequence> &targets) const {
    Batch batch;
    batch.assign(sources, targets, module.pad, false);
    const Binding bindings[] = {{"source", batch.ids(XFC_SOURCE).data()}, {"target", batch.ids(XFC_TARGET).data()}};
    on.run("forward", batch.shape(), bindings);
    const View view = on.output("forward", "logits");
    const xfc_rows &rows = batch.shape().sets[XFC_TARGET];
    const int64_t size = bytesOf(view.output->type);
    std::vector<std::string> logits(sources.size());
    for (size_t i = 0; i < sources.size(); ++i)
      for (int32_t row = rows.offsets[i]; row < rows.offsets[i + 1]; ++row)
        logits[i].append(static_cast<const char *>(view.data) + row * view.stride * size,
                         static_cast<size_t>(module.targetVocab * size));
    return logits;
  }

  void checkBatchMates() {
    const size_t count = sentences.sources.size();
    std::vector<std::string> alone;
    alone.reserve(count);
    for (size_t i = 0; i < count; ++i)
      alone.push_back(logitsOf(engine, {sequences[0][i]}, {sequences[1][i]}).front());
    std::mt19937_64 random(seed);
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    int64_t compared = 0, different = 0, mix = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (; mix < mixes && std::chrono::steady_clock::now() - begin < std::chrono::seconds(30); ++mix) {
      for (size_t i = count; i > 1; --i) // std::shuffle differs between libraries
        std::swap(order[i - 1], order[random() % i]);
      std::vector<Sequence> sources, targets;
      const size_t together = 1 + random() % count;
      for (size_t i = 0; i < together; ++i) {
        sources.push_back(sequences[0][order[i]]);
        targets.push_back(sequences[1][order[i]]);
      }
      const std::vector<std::string> mixed = logitsOf(engine, sources, targets);
      for (size_t i = 0; i < together; ++i) {
        ++compared;
        different += mixed[i] != alone[order[i]];
      }
    }
    report("batch mates: logits of sentences in " + std::to_string(mix) + " random batches", compared, different);

    // A control: if another source token did not change the logits, the comparison above would prove nothing.
    Ids other = sentences.sources.back();
    other.back() = other.back() == module.unk ? module.bos : module.unk;
    const bool seen =
        logitsOf(engine, {{other, static_cast<int64_t>(other.size()), 0}}, {sequences[1].back()}).front() !=
        alone.back();
    report("control: changing a token changes the logits", 1, !seen);
    uint32_t sum = 0;
    for (const std::string &logits : alone)
      sum = crc32c(logits, sum);
    fingerprint("logits", sum);
  }

  // The best translation of each sentence, with its score, as bytes.
  std::vector<std::string> translationsOf(Engine &on, const std::string &type, int64_t batchTokens) const {
    SearchOptions options;
    options.generation.beam = 4;
    options.generation.maxLength = 12;
    options.computeType = type;
    options.batchTokens = batchTokens;
    std::vector<std::string> translations;
    for (const std::vector<Hypothesis> &hypotheses : search(on, sentences.sources, options)) {
      const Hypothesis &best = hypotheses.front();
      translations.emplace_back(reinterpret_cast<const char *>(best.ids.data()), best.ids.size() * sizeof(int32_t));
      translations.back().append(reinterpret_cast<const char *>(&best.score), sizeof best.score);
    }
    return translations;
  }

  static int64_t differing(const std::vector<std::string> &a, const std::vector<std::string> &b) {
    int64_t count = 0;
    for (size_t i = 0; i < a.size(); ++i)
      count += a[i] != b[i];
    return count;
  }

  // The type is named unless it is the executable's own.
  std::string inType(const std::string &type) const { return type == module.compute ? "" : " in " + type; }

  void checkTranslations(const std::string &type) {
    const std::vector<std::string> first = translationsOf(engine, type, int64_t(1) << 20);
    int64_t compared = 0, different = 0;
    for (int64_t batchTokens : {1, 37, 64}) {
      compared += std::ssize(first);
      different += differing(first, translationsOf(engine, type, batchTokens));
    }
    report("batch mates: translations" + inType(type) + " with a beam of 4, other batches", compared, different);
    uint32_t sum = 0;
    for (const std::string &translation : first)
      sum = crc32c(std::string_view(translation).substr(0, translation.size() - sizeof(Hypothesis::score)), sum);
    fingerprint("translations" + inType(type), sum);
  }

  // Compares the image that runs with every other one that this CPU can run. The plain one, whose sums have another
  // order, is compared with nothing.
  void checkInstructionSets() {
    if (module.compute == "bf16") {
      std::printf("instruction sets: what is rounded to bf16 depends on them, so they are not compared\n");
      return;
    }
    std::vector<const xfc_image *> images = usableImages(xfc_images);
    std::erase_if(images, [](const xfc_image *image) { return std::string_view(image->cpu) == "plain"; });
    if (images.size() < 2)
      std::printf(
          "instruction sets: not compared, since this executable has no other that this CPU can run; compile it "
          "with --cpu native,x86-64-v3\n");
    for (size_t i = 1; i < images.size(); ++i) {
      Engine other(cpuDevice(*images[i]), threads);
      copyParameters(other);
      const auto compare = [&](const std::string &what, int64_t compared, int64_t different) {
        report("instruction sets: " + what + " on " + images[i]->cpu, compared, different);
      };
      if (engine.has("loss_and_gradients"))
        compare("gradients", module.parameterElements, differing(gradientsOf(engine), gradientsOf(other)));
      if (engine.has("forward"))
        compare("logits of sentences", std::ssize(sequences[0]),
                differing(logitsOf(engine, sequences[0], sequences[1]), logitsOf(other, sequences[0], sequences[1])));
      for (const std::string &type : module.computeTypes(programs::decodeStep))
        if (type == module.compute || type == "int8")
          compare("translations" + inType(type), std::ssize(sentences.sources),
                  differing(translationsOf(engine, type, 64), translationsOf(other, type, 64)));
    }
  }

  // Compares six uninterrupted steps with six that are interrupted after the third and resumed on an engine with
  // another number of threads: the saved parameters and optimizer states must be identical.
  void checkResume() {
    const TemporaryFolder whole("selfcheck"), halves("selfcheck");
    RunFolder wholeRun(whole.path), halvesRun(halves.path);
    wholeRun.identity = halvesRun.identity = identityOf(module);
    Progress progress; // any progress that a run could write
    progress.facts.batchTokens = 1;
    const std::unique_ptr<Ranks> alone = oneRank();
    const auto save = [&](Engine &engine, const RunFolder &folder) {
      States states(engine, optimizers().front(), *alone);
      folder.saveState(states, progress);
    };
    std::string said;
    {
      Engine other(threads, device);
      initializeParameters(other, seed);
      train(other, 1, 6);
      save(other, wholeRun);
    }
    {
      Engine other(threads, device);
      initializeParameters(other, seed);
      train(other, 1, 3);
      save(other, halvesRun);
    }
    Engine other(threads == 1 ? 2 : 1, device);
    halvesRun.loadState(other, said);
    States states(other, optimizers().front(), *alone);
    halvesRun.shareStates(states);
    train(other, 4, 6);
    save(other, halvesRun);
    const Tensors one = readSafetensors(whole.path + "/state/training.safetensors"),
                  two = readSafetensors(halves.path + "/state/training.safetensors");
    int64_t different = one.size() != two.size();
    uint32_t sum = 0;
    for (const auto &[name, tensor] : one) {
      const auto found = two.find(name);
      different += found == two.end() || found->second.bytes != tensor.bytes;
      sum = crc32c({reinterpret_cast<const char *>(tensor.bytes.data()), tensor.bytes.size()}, sum);
    }
    report("resume: tensors of the state after six steps", static_cast<int64_t>(one.size()), different);
    fingerprint("state after six steps", sum);
  }

  void train(Engine &on, int64_t from, int64_t to) const {
    const Corpus corpus(sentences.sources, sentences.targets, module);
    std::vector<PairsOfCorpus> batches(2, pairsOf(corpus, {}));
    for (size_t pair = 0; pair < corpus.size(); ++pair)
      batches[pair % 2].pairs.push_back(static_cast<int64_t>(pair));
    const UpdateOptions options{.settings = {.rate = 1e-3}, .seed = seed};
    Update update(on);
    for (int64_t step = from; step <= to; ++step)
      update.run({&batches[static_cast<size_t>(step % 2)], 1}, step, options);
  }

  uint64_t seed;
  int threads;
  DeviceChoice device;
  int64_t mixes;
  Engine engine;
  const Module &module;
  Sentences sentences;
  std::vector<std::vector<Sequence>> sequences; // [0]: of the sources, [1]: of the targets
  bool broken = false;
};

} // namespace

bool keepsPromises(uint64_t seed, int threads, const DeviceChoice &device, int64_t mixes) {
  return Promises(seed, threads, device, mixes).run();
}

} // namespace xfc
