// Runs one training step: the loss and gradients of one or several batches, then the optimizer. Nothing is allocated
// once a batch of that size has been seen.
#pragma once

#include "corpora/Batches.h"
#include "decode/AlignmentLinks.h"
#include "decode/LabelLists.h"
#include "engine/Batch.h"
#include "engine/Engine.h"
#include "plan/Optimizers.h"
#include "plan/Programs.h"
#include "plan/Sharding.h"
#include "plan/Training.h"
#include "ranks/Ranks.h"
#include "train/FiniteCheck.h"
#include "train/Groups.h"
#include "train/SumOfRanks.h"
#include <array>
#include <optional>

namespace xfc {

// Pairs of a corpus in the form that the programs `score` and `loss_and_gradients` read.
class PairBatch {
public:
  // `shares` are those of the losses of a training program that was compiled with --distillation or with
  // --guided-alignment; other programs have the smoothing as an input.
  void assign(const Corpus &corpus, std::span<const int64_t> pairs, const Module &module, bool training,
              const LossShares &shares = {});
  xfc_shape &shape() { return batch.shape(); }
  const xfc_shape &shape() const { return batch.shape(); }
  int64_t labelCount() const { return counted; } // without pad labels
  // Sets the input `loss_scale` of `loss_and_gradients` to `scale` times the weight of each label.
  void scaleLosses(double scale);
  Binding lossScale() {
    return {names::lossScale, isDouble ? static_cast<void *>(doubleScales.data()) : floatScales.data()};
  }
  // The sum of a result with one number for each label, which it weights.
  double weightedSum(const View &view) const;
  // The bindings of its tensors, and `more`.
  template <typename... More> std::array<Binding, 7 + sizeof...(More)> bindings(const More &...more) {
    return {{{names::source, batch.ids(XFC_SOURCE).data()},
             {names::target, batch.ids(XFC_TARGET).data()},
             {names::labels, labels.data()},
             more...,
             lists.lists(),
             lists.shares(),
             alignment.links(),
             alignment.shares()}};
  }

private:
  Batch batch;
  std::vector<int32_t> labels;
  LabelLists lists;           // the same labels
  AlignmentLinks alignment;   // their links
  std::vector<float> weights; // of the labels
  bool isDouble = false;      // of the two below, the executable's type
  std::vector<float> floatScales;
  std::vector<double> doubleScales;
  std::vector<Sequence> sources, targets;
  int64_t counted = 0;
};

// Numbers that a program reads as a tensor, at most 8, in the executable's type.
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

// The sum of a result with one number per row.
double sumOfRows(const View &view, int64_t rows);

struct UpdateOptions {
  const Optimizer *optimizer = &optimizers().front();
  OptimizerSettings settings;
  double clipNorm = 1, smoothing = TrainingSettings().labelSmoothing;
  double distillation = 0; // the share of the loss that follows the distributions of the corpus
  double alignment = 0;    // by which the cross-entropy of links of the corpus is multiplied
  uint64_t seed = 1;
};

struct UpdateResult {
  double loss = 0, nll = 0; // sums over the labels; the loss is weighted
  double alignment = 0;     // the part of the loss that is the cross-entropy of links
  int64_t labels = 0;
  double norm = 0;   // of the gradient, before clipping
  bool taken = true; // false: the loss or the norm is not finite, and parameters and states are as they were
};

class Update {
public:
  // A step of several ranks is bit-identical to that of a single process on the same batches: batch i is processed by
  // rank i modulo the number of ranks. Null: a single process.
  explicit Update(Engine &engine, Ranks *ranks = nullptr);
  ~Update();
  // From now on, each group is updated with its own settings, and frozen parameters stay unchanged: their gradients are
  // ignored, also in the norm. To be called before the first step.
  void trainInGroups(TrainedGroups trained, const Optimizer &optimizer);
  // From now on, each of several ranks keeps the optimizer's states of its share of the parameters only, and updates
  // these. Does nothing for a single process, and if the optimizer's program cannot be split. To be called before the
  // states are used and after trainInGroups().
  void shareStates(const Optimizer &optimizer);
  // How the states are shared, or null if they are not.
  const Sharding *sharing() const { return share ? &*sharding : nullptr; }
  // Connects the devices of several ranks, if these have memory of their own. All ranks call this at the same time,
  // once everything above is done and they know that they are alike. Throws CommonError if two of them use the same
  // GPU.
  void join();
  // The bytes that the sum over several ranks takes on one of them, up to rounding.
  int64_t bytesOfSum() const;
  // Gathers the sums of the last step's gradients on every rank, each of which has only its share if states are shared.
  void gatherGradients();
  // Gathers a block in host memory, laid out like the parameters, of which each rank has its share, on every rank.
  void gather(void *block);
  // Runs step number `step` (from 1) on these batches. Gradients are of the weighted sum of the losses of all their
  // labels, divided by the number of labels. The batches of the `next` step, if they are known, are prepared and
  // transferred to the device while it computes. On a device that uses host memory, a step whose loss or norm is not
  // finite is not taken: parameters and states stay as they are.
  UpdateResult run(std::span<const PairsOfCorpus> batches, int64_t step, const UpdateOptions &options,
                   std::span<const PairsOfCorpus> next = {});

  // What made the loss or the gradients of the last run, which was such a step, not finite: runs the batches of this
  // rank once more. Dropout draws the same numbers again. Overwrites the gradients.
  struct NotFinite : FiniteCheck::Found {
    int64_t batch; // of the step's batches, over all ranks
  };
  std::optional<NotFinite> firstNotFinite();

private:
  void addGradients(const xfc_shape &shape, bool first, bool last);
  void beginRound(size_t round, size_t total);
  void addLosses(UpdateResult &result);
  int rankCount() const { return ranks ? ranks->size() : 1; }

  void *hyperOf(const UpdateOptions &options, int64_t step);

  Engine &engine;
  Ranks *ranks;
  TrainedGroups groups;
  std::vector<double> hyper; // one row per group; `hyperSingle` is its copy in f32
  std::vector<float> hyperSingle;
  std::optional<Sharding> sharding;       // set if there are several ranks
  std::unique_ptr<SumOfRanks> sumOfRanks; // likewise
  // Set if ranks share the optimizer's states. Gathers the sums of squares before the norm is computed from them.
  struct Share;
  std::unique_ptr<Share> share;
  struct Guard;
  // What runs of the program loss_and_gradients read and give, for the batches of a step. However many there are, only
  // a few are prepared at a time: as many as keep a device at work while one is prepared. Kept between steps, so that
  // steps do not allocate.
  struct Slot {
    PairBatch batch;
    std::unique_ptr<Readback> loss, nll, alignment;
  };
  struct Inputs {
    void assign(std::span<const PairsOfCorpus> batches, int64_t step, const UpdateOptions &options,
                const Module &module, const Ranks *ranks);
    bool are(std::span<const PairsOfCorpus> batches, int64_t step, const UpdateOptions &options) const;
    // Of this rank's batch number `batch`. Preparing one overwrites the batch that is as many before it as there are
    // slots.
    Slot &slot(size_t batch) { return slots[batch % slots.size()]; }
    void prepare(size_t batch, const Module &module);
    auto bindings(size_t batch) {
      PairBatch &of = slot(batch).batch;
      return of.bindings(Binding{names::smoothing, smoothing.data()}, of.lossScale());
    }
    std::array<Slot, 4> slots;
    std::vector<PairsOfCorpus> pairs; // for each of the step's `total` batches, `count` of which are this rank's
    size_t count = 0, total = 0, rank = 0, rankCount = 1;
    size_t prepared = 0; // of this rank's batches, in their order
    int64_t step = 0, labels = 0;
    uint64_t seed = 0;
    LossShares shares;
    Scalars smoothing;
  } inputs[2]; // for the current step, and for the next
  int present = 0;
  void prepare(Inputs &inputs, std::span<const PairsOfCorpus> batches, int64_t step, const UpdateOptions &options);
  void prepareNext();
  void collectLosses(size_t end);
  std::vector<double> lossSums; // loss, nll and alignment of each batch of this rank whose results were read
  std::unique_ptr<Readback> norm;
  std::vector<Binding> sums; // of the gradients of several batches: the bindings of the program `accumulate`
};

} // namespace xfc
