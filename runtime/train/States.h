// The optimizer's states in a training run: whole, or shared by ranks.
#pragma once

#include "engine/Engine.h"
#include "engine/Safetensors.h"
#include "plan/Optimizers.h"
#include "ranks/Ranks.h"
#include "train/Update.h"
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// The parameters, as tensors of a state's file: weights.PARAMETER.
TensorViews weightsInState(Engine &engine);

// All ranks call these functions in the same order, except where it says otherwise. Between the steps of training, the
// memory of the gradients serves as room for a state that is put together from shares.
class States {
public:
  // `update` says how ranks share the states; null: they do not.
  States(Engine &engine, const Optimizer &optimizer, Ranks &ranks, Update *update = nullptr);
  Engine &engineOf() const { return engine; }
  Ranks &ranksOf() const { return ranks; }

  // Each state that the optimizer keeps of each parameter, under the name STATE.PARAMETER.
  struct Tensor {
    std::string name;
    std::string_view state;
    DType type; // of its numbers
    OptimizerState::Part part;
  };
  static std::vector<Tensor> tensorsOf(const Module &module, const Optimizer &optimizer);
  const std::vector<Tensor> &tensors() const { return all; }
  // Whether ranks must gather() a state before the first one has all of it.
  bool areShared() const { return sharing != nullptr; }
  // Where the first rank has a state, once that is gathered.
  std::string_view placeOf(const Tensor &tensor);
  // Puts a state together on the first rank. Its bytes are valid until the next call.
  void gather(const Tensor &tensor);
  // Gives every rank its share of a state, or all of it. The first rank's bytes count.
  void scatter(const Tensor &tensor, std::string_view bytes);

  // Whether the optimizer keeps a moving average of the parameters.
  bool hasAverage() const { return optimizer.averages; }
  // Begins the moving average with the parameters, if the optimizer keeps one.
  void beginAverage();
  // Calls `use` with the moving average, if the optimizer keeps one, in place of the parameters, which are restored bit
  // for bit, also if it throws Interrupted. After other errors, parameters and average stay exchanged.
  void withAverage(const std::function<void()> &use);
  // Throws an Error that names the first parameter or state, of those that this rank keeps, that holds NaN or infinity:
  // a state that cannot be trained from must not be saved. Concerns one rank alone.
  void checkFinite();

private:
  // The parts of a tensor that a rank keeps: calls use(elements of the whole block, their place in the rank's block).
  template <typename Use> void forEachPart(const Tensor &tensor, int rank, Use use) const;
  char *blockOf(std::string_view state) { return static_cast<char *>(engine.optimizerState(state)); }
  // The bytes of one element of a tensor's state, and those of the tensor.
  int64_t elementOf(const Tensor &tensor) const { return xfc::bytesOf(tensor.type); }
  int64_t bytesOf(const Tensor &tensor) const { return elementsOf(tensor.part.shape) * elementOf(tensor); }
  void swapAverage();
  Engine &engine;
  const Optimizer &optimizer;
  Ranks &ranks;
  const Sharding *sharing; // null: every rank keeps all states
  const int64_t element;   // bytes of a parameter, and of its moving average
  Update *update;
  std::vector<Tensor> all;
};

} // namespace xfc
