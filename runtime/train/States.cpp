// The optimizer's states in a training run: whole, or shared by ranks.
#include "train/States.h"
#include "support/Signals.h"
#include <algorithm>
#include <cstring>

namespace xfc {

States::States(Engine &engine, const Optimizer &optimizer, Ranks &ranks, Update *update)
    : engine(engine), optimizer(optimizer), ranks(ranks), sharing(update ? update->sharing() : nullptr),
      element(xfc::bytesOf(engine.module().type)), update(update), all(tensorsOf(engine.module(), optimizer)) {}

std::vector<States::Tensor> States::tensorsOf(const Module &module, const Optimizer &optimizer) {
  std::vector<Tensor> tensors;
  for (std::string_view state : optimizer.states)
    if (const OptimizerState *kept = module.findState(state)) // a model without matrices has no means of columns
      for (const OptimizerState::Part &part : module.partsOf(*kept))
        tensors.push_back({std::string(state) + "." + module.parameters[part.parameter].name, state, kept->type, part});
  std::ranges::stable_sort(tensors, {}, [](const Tensor &tensor) { return tensor.part.parameter; });
  return tensors;
}

template <typename Use> void States::forEachPart(const Tensor &tensor, int rank, Use use) const {
  const int64_t first = tensor.part.offset, last = first + elementsOf(tensor.part.shape);
  if (!sharing)
    return use(Range{first, last}, first);
  int64_t before = 0; // elements of the rank's ranges before this one
  for (const Range &range : sharing->rangesOf(rank)) {
    const Range common = {std::max(range.begin, first), std::min(range.end, last)};
    if (common.size() > 0)
      use(common, before + common.begin - range.begin);
    before += range.size();
  }
}

std::string_view States::placeOf(const Tensor &tensor) {
  const char *block = sharing ? static_cast<const char *>(engine.gradients()) : blockOf(tensor.state);
  return {block + tensor.part.offset * elementOf(tensor), static_cast<size_t>(bytesOf(tensor))};
}

void States::gather(const Tensor &tensor) {
  if (!sharing)
    return;
  const int64_t size = elementOf(tensor);
  std::vector<Ranks::Part> parts;
  char *whole = static_cast<char *>(engine.gradients());
  if (!ranks.isFirst()) {
    char *own = blockOf(tensor.state);
    forEachPart(tensor, ranks.rank(), [&](const Range &range, int64_t place) {
      parts.push_back({0, own + place * size, range.size() * size});
    });
    ranks.exchange(parts, {});
    return;
  }
  for (int rank = 0; rank < ranks.size(); ++rank)
    forEachPart(tensor, rank, [&](const Range &range, int64_t place) {
      char *to = whole + range.begin * size;
      if (rank == 0)
        std::memcpy(to, blockOf(tensor.state) + place * size, range.size() * size);
      else
        parts.push_back({rank, to, range.size() * size});
    });
  ranks.exchange({}, parts);
}

void States::scatter(const Tensor &tensor, std::string_view bytes) {
  const int64_t size = elementOf(tensor);
  char *own = blockOf(tensor.state);
  if (!sharing) {
    char *to = own + tensor.part.offset * size;
    if (ranks.isFirst())
      std::memcpy(to, bytes.data(), bytes.size());
    ranks.broadcast(to, bytesOf(tensor));
    return;
  }
  std::vector<Ranks::Part> parts;
  if (!ranks.isFirst()) {
    forEachPart(tensor, ranks.rank(), [&](const Range &range, int64_t place) {
      parts.push_back({0, own + place * size, range.size() * size});
    });
    ranks.exchange({}, parts);
    return;
  }
  const int64_t offset = tensor.part.offset;
  for (int rank = 0; rank < ranks.size(); ++rank)
    forEachPart(tensor, rank, [&](const Range &range, int64_t place) {
      const char *from = bytes.data() + (range.begin - offset) * size;
      if (rank == 0)
        std::memcpy(own + place * size, from, range.size() * size);
      else
        parts.push_back({rank, const_cast<char *>(from), range.size() * size});
    });
  ranks.exchange(parts, {});
}

void States::beginAverage() {
  if (!optimizer.averages)
    return;
  char *average = blockOf(averageState);
  for (const Range &range : engine.statesKept()) {
    std::memcpy(average, static_cast<const char *>(engine.parameters()) + range.begin * element,
                range.size() * element);
    average += range.size() * element;
  }
  engine.statesChanged();
}

// If states are shared, each rank exchanges its share of the parameters, and gets those of the others.
void States::swapAverage() {
  auto *parameters = static_cast<char *>(engine.parameters());
  char *average = blockOf(averageState);
  for (const Range &range : engine.statesKept()) {
    const int64_t bytes = range.size() * element;
    char *const begin = parameters + range.begin * element;
    std::swap_ranges(begin, begin + bytes, average);
    average += bytes;
  }
  engine.statesChanged();
  if (sharing)
    update->gather(parameters);
  engine.parametersChanged();
}

void States::withAverage(const std::function<void()> &use) {
  if (!optimizer.averages)
    return use();
  swapAverage();
  try {
    use();
  } catch (const Interrupted &) { // on every rank; after any other error, the run ends
    swapAverage();
    throw;
  }
  swapAverage();
}

TensorViews weightsInState(Engine &engine) {
  TensorViews tensors = weights(engine);
  for (TensorView &tensor : tensors)
    tensor.name = "weights." + tensor.name;
  return tensors;
}

void States::checkFinite() {
  TensorViews tensors = weightsInState(engine);
  for (const Tensor &tensor : all)
    forEachPart(tensor, ranks.rank(), [&](const Range &range, int64_t place) {
      const int64_t size = elementOf(tensor);
      tensors.push_back({tensor.name,
                         elementTypeOf(tensor.type).inTensors,
                         {range.size()},
                         {blockOf(tensor.state) + place * size, static_cast<size_t>(range.size() * size)}});
    });
  if (const TensorView *bad = notFinite(&engine.pool(), tensors))
    throw Error("'" + bad->name + "' holds NaN or infinity");
}

} // namespace xfc
