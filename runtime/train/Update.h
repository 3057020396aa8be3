// One training step: the loss and gradients of one or several batches, then the optimizer. Nothing allocates once a
// batch as large was seen.
#pragma once

#include "engine/Batch.h"
#include "engine/Engine.h"
#include "plan/Optimizers.h"
#include "plan/Programs.h"
#include "text/Corpus.h"
#include "train/GradientSum.h"
#include "train/Groups.h"
#include <array>
#include <optional>

namespace xfc {

// Pairs of a corpus as the programs `score` and `loss_and_gradients` read them.
class PairBatch {
public:
  void assign(const Corpus &corpus, std::span<const int64_t> pairs, const Module &module, bool training);
  xfc_shape &shape() { return batch.shape(); }
  const xfc_shape &shape() const { return batch.shape(); }
  int64_t labelCount() const { return counted; } // of those that are not pad
  // Bindings of what it holds, and `more`.
  template <typename... More> std::array<Binding, 3 + sizeof...(More)> bindings(const More &...more) {
    return {{{names::source, batch.ids(XFC_SOURCE).data()},
             {names::target, batch.ids(XFC_TARGET).data()},
             {names::labels, labels.data()},
             more...}};
  }

private:
  Batch batch;
  std::vector<int32_t> labels;
  std::vector<Sequence> sources, targets;
  int64_t counted = 0;
};

// Numbers a program takes as a tensor, at most 8, in the executable's type.
class Scalars {
public:
  Scalars() = default;
  Scalars(const Module &module, std::initializer_list<double> values)
      : Scalars(module, std::span(values.begin(), values.size())) {}
  Scalars(const Module &module, std::span<const double> values);
  void *data() { return isDouble ? static_cast<void *>(doubles) : floats; }

private:
  bool isDouble = false;
  float floats[mostHyperparameters] = {};
  double doubles[mostHyperparameters] = {};
};

// Sums of a result with one number a row.
double sumOfRows(const View &view, int64_t rows);

struct UpdateOptions {
  const Optimizer *optimizer = &optimizers().front();
  OptimizerSettings settings;
  double clipNorm = 1, smoothing = 0.1;
  uint64_t seed = 1;
};

struct UpdateResult {
  double loss = 0, nll = 0; // sums over the labels
  int64_t labels = 0;
  double norm = 0; // of the gradient, before clipping
};

class Update {
public:
  // A step of several ranks is the one that a process alone makes of the same batches, to the bit: batch i is the work
  // of rank i modulo their number. They need a device whose memory is the host's. Null: the process is alone.
  explicit Update(Engine &engine, Ranks *ranks = nullptr);
  // From now on, which is to be before the first step, each group takes its step with settings of its own, and what is
  // frozen stays as it is: its gradients count nowhere, not in the norm either.
  void trainInGroups(TrainedGroups trained, const Optimizer &optimizer);
  // Step number `step` (from 1) over `batches` of pair numbers. Gradients are of the mean loss over all their labels.
  // The batches of the `next` step, where they are known, are prepared, and go to the device, while it computes.
  UpdateResult run(const Corpus &corpus, std::span<const std::vector<int64_t>> batches, int64_t step,
                   const UpdateOptions &options, std::span<const std::vector<int64_t>> next = {});

private:
  void addGradients(const xfc_shape &shape, bool first, bool last);
  void addGradientsOfRanks(size_t round, size_t total);
  void addLosses(UpdateResult &result);
  int rankCount() const { return ranks ? ranks->size() : 1; }

  void *hyperOf(const UpdateOptions &options, int64_t step);

  Engine &engine;
  Ranks *ranks;
  TrainedGroups groups;
  std::vector<double> hyper; // a row for each group; in f32 where the executable computes in it
  std::vector<float> hyperSingle;
  std::optional<GradientSum> sumOfRanks; // where there are several
  // What the program loss_and_gradients reads in a step, and what that was made of; kept, so that steps do not
  // allocate.
  struct Inputs {
    void assign(const Corpus &corpus, std::span<const std::vector<int64_t>> batches, int64_t step,
                const UpdateOptions &options, const Module &module, const Ranks *ranks);
    bool are(std::span<const std::vector<int64_t>> batches, int64_t step, const UpdateOptions &options) const;
    auto bindings(size_t batch) {
      return batches[batch].bindings(Binding{names::smoothing, smoothing.data()},
                                     Binding{names::lossScale, lossScale.data()});
    }
    std::vector<PairBatch> batches;          // `count` of this rank; one at least is there
    std::vector<std::vector<int64_t>> pairs; // of `total` batches of the step
    size_t count = 0, total = 0;
    int64_t step = 0, labels = 0;
    uint64_t seed = 0;
    double smoothed = 0;
    Scalars smoothing, lossScale;
  } inputs[2]; // of the present step, and of the next
  int present = 0;
  void prepare(Inputs &inputs, const Corpus &corpus, std::span<const std::vector<int64_t>> batches, int64_t step,
               const UpdateOptions &options);
  struct Losses {
    std::unique_ptr<Readback> loss, nll;
  };
  std::vector<Losses> losses;   // of each batch of this rank
  std::vector<double> lossSums; // loss and nll of each of them
  std::unique_ptr<Readback> norm;
  std::vector<Binding> sums; // of the gradients of several batches: what the program `accumulate` reads
};

} // namespace xfc
