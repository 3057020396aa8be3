// Runs a rectangular batch through a model.
#include "decode/Forward.h"
#include "decode/AlignmentLinks.h"
#include "decode/LabelLists.h"
#include "engine/Safetensors.h"
#include "plan/Programs.h"
#include <algorithm>
#include <cstring>

namespace xfc {
namespace {

// Whether an attention of any program has these queries and keys and no mask; with `orCausal`, a causal mask may be
// there.
bool hasUnmasked(const Module &module, int relation, bool orCausal = false) {
  for (size_t i = 0; i < module.programs.size(); ++i)
    for (const Step &step : module.programs[i].steps)
      if (step.keys == XFC_KEYS(relation, 0, 0) || (orCausal && step.keys == XFC_KEYS(relation, 0, 1)))
        return true;
  return false;
}

} // namespace

std::string rangeOfIds(int32_t least, int64_t vocabulary) {
  return "but the vocabulary has the ids 0 to " + std::to_string(vocabulary - 1) +
         (least < 0 ? ", and -1 is padding" : "");
}

Forward::Forward(Engine &engine, Rectangle givenSource, Rectangle givenTarget, Rectangle givenLabels)
    : engine(engine), module(engine.module()), source(std::move(givenSource)), target(std::move(givenTarget)),
      labels(std::move(givenLabels)) {
  check(names::source, source, module.maxLength);
  if (module.hasDecoder) {
    check(names::target, target, module.maxTargetLength);
    if (target.batch != source.batch)
      throw Error("'source' has " + std::to_string(source.batch) + " sentences, 'target' " +
                  std::to_string(target.batch));
    if (!labels.ids.empty() && (labels.batch != target.batch || labels.columns != target.columns))
      throw Error("'labels' is " + textOf({labels.batch, labels.columns}) + ", expected the shape of 'target', " +
                  textOf({target.batch, target.columns}));
  }

  // An attention without a padding mask sees pads, so their rows must be there.
  bool keepSource = hasUnmasked(module, XFC_SOURCE_SOURCE) || hasUnmasked(module, XFC_TARGET_SOURCE, true);
  bool keepTarget = hasUnmasked(module, XFC_TARGET_TARGET) || hasUnmasked(module, XFC_TARGET_SOURCE);
  makeRows(names::source, source, keepSource, nullptr, sourceIds, sources, sourceNumbers32, sourceNumbers64);
  if (module.hasDecoder)
    makeRows(names::target, target, keepTarget, &labels, targetIds, targets, targetNumbers32, targetNumbers64);
  batch.assign(sources, targets, module.pad, true);
}

void Forward::run(bool withAttention) {
  const char *program =
      withAttention && engine.has(programs::forwardAttention) ? programs::forwardAttention : programs::forward;
  engine.run(program, batch.shape(), inputs());
  for (const Output &output : module.find(program)->outputs) {
    if (output.keys >= 0)
      results[output.name] = pairsResult(engine.output(program, output.name));
    else
      results[output.name] = rowsResult(engine.output(program, output.name));
  }
}

void Forward::runGradients(double smoothing) {
  if (!engine.has(programs::lossAndGradients))
    throw Error("--gradients: model '" + module.model +
                "' has no gradients: they need a decoder with a head, and an executable compiled with --mode train");
  if (labels.ids.empty())
    throw Error("--gradients: the input holds no 'labels' int32 [batch, tokens]");
  std::vector<int32_t> says; // one per row; -1: not counted
  LabelLists lists;
  lists.clear(module);
  AlignmentLinks links; // none
  links.clear(module);
  int64_t counted = 0;
  for (int64_t b = 0; b < target.batch; ++b)
    for (int64_t t = 0; t < targets[b].length; ++t) {
      int32_t label = labels.ids[b * target.columns + t];
      says.push_back(label == module.pad ? -1 : label);
      lists.add(says.back(), {.smoothing = smoothing});
      counted += label != module.pad;
    }
  links.add(says.size(), 0);
  if (counted == 0)
    throw Error("--gradients: every label is pad; there is no loss");
  std::vector<uint8_t> smoothingData = scalar(smoothing), scale(says.size() * bytesOf(module.type));
  for (size_t row = 0; row < says.size(); ++row)
    store(scale, static_cast<int64_t>(row), 1.0 / static_cast<double>(counted));
  std::vector<Binding> bindings = inputs();
  bindings.insert(bindings.end(), {{names::labels, says.data()},
                                   {names::smoothing, smoothingData.data()},
                                   {names::lossScale, scale.data()},
                                   lists.lists(),
                                   lists.shares(),
                                   links.links(),
                                   links.shares()});
  engine.run(programs::lossAndGradients, batch.shape(), bindings);

  View loss = engine.output(programs::lossAndGradients, names::loss);
  double sum = 0;
  for (size_t row = 0; row < says.size(); ++row)
    sum += loss.at(static_cast<int64_t>(row));
  results[names::loss] = {elementTypeOf(module.type).inTensors, {}, scalar(sum / static_cast<double>(counted))};
  for (const Parameter &parameter : module.parameters) {
    const uint8_t *begin = static_cast<const uint8_t *>(engine.gradients()) + parameter.offset * bytesOf(module.type);
    results[names::gradientOf + parameter.name] = {
        elementTypeOf(module.type).inTensors, parameter.shape,
        std::vector<uint8_t>(begin, begin + elementsOf(parameter.shape) * bytesOf(module.type))};
  }
}

std::vector<uint8_t> Forward::scalar(double value) const {
  std::vector<uint8_t> bytes(bytesOf(module.type));
  store(bytes, 0, value);
  return bytes;
}
void Forward::store(std::vector<uint8_t> &bytes, int64_t i, double value) const {
  float narrow = static_cast<float>(value);
  if (module.type == DType::F64)
    std::memcpy(bytes.data() + i * 8, &value, 8);
  else
    std::memcpy(bytes.data() + i * 4, &narrow, 4);
}

void Forward::check(const char *name, const Rectangle &rectangle, int64_t maxLength) {
  if (rectangle.batch == 0 || rectangle.columns == 0)
    throw Error("'" + std::string(name) + "' is " + textOf({rectangle.batch, rectangle.columns}) +
                ", expected at least one sentence of one token");
  if (maxLength > 0 && rectangle.columns > maxLength)
    throw Error("'" + std::string(name) + "' has " + std::to_string(rectangle.columns) +
                " tokens per sentence, but the model's max_length is " + std::to_string(maxLength));
}

// Drops a sentence's trailing columns whose id and label are both pad, unless pads are tokens, and visible.
void Forward::makeRows(const char *name, const Rectangle &from, bool keepAll, const Rectangle *labels,
                       std::vector<std::vector<int32_t>> &ids, std::vector<Sequence> &sequences,
                       std::vector<float> &narrow, std::vector<double> &wide) {
  for (int64_t b = 0; b < from.batch; ++b) {
    int64_t length = from.columns;
    while (!(keepAll && module.pad >= 0) && length > 0 && from.isPad(b * from.columns + length - 1, module.pad) &&
           (!labels || labels->ids.empty() || labels->isPad(b * from.columns + length - 1, module.pad)))
      --length;
    ids.emplace_back();
    if (!from.ids.empty())
      ids.back().assign(from.ids.begin() + b * from.columns, from.ids.begin() + b * from.columns + length);
    if (const auto pad = std::find(ids.back().begin(), ids.back().end(), -1); pad != ids.back().end())
      throw Error("'" + std::string(name) + "'[" + std::to_string(b) + ", " + std::to_string(pad - ids.back().begin()) +
                  "] is -1, padding, but tokens or a label follow; expected padding at the end of the line");
    sequences.push_back({{}, length, static_cast<uint32_t>(b)});
  }
  for (size_t b = 0; b < sequences.size(); ++b)
    sequences[b].ids = ids[b];
  if (module.type == DType::F64)
    wide = from.numbers;
  else
    narrow.assign(from.numbers.begin(), from.numbers.end());
}

std::vector<Binding> Forward::inputs() {
  auto data = [&](int set, const Rectangle &from, std::vector<float> &narrow, std::vector<double> &wide) -> void * {
    if (from.numbers.empty())
      return batch.ids(set).data();
    return module.type == DType::F64 ? static_cast<void *>(wide.data()) : narrow.data();
  };
  std::vector<Binding> bindings = {{names::source, data(XFC_SOURCE, source, sourceNumbers32, sourceNumbers64)}};
  if (module.hasDecoder)
    bindings.push_back({names::target, data(XFC_TARGET, target, targetNumbers32, targetNumbers64)});
  return bindings;
}

// [batch, columns, features]; columns without a row, and the encoder's output at pads, are 0.
StoredTensor Forward::rowsResult(const View &view) const {
  const Output &output = *view.output;
  const Rectangle &shape = output.set == XFC_SOURCE ? source : target;
  const xfc_rows &rows = batch.shape().sets[output.set];
  const int64_t features = elementsOf(output.shape);
  StoredTensor result{elementTypeOf(module.type).inTensors, {shape.batch, shape.columns, features}, {}};
  result.bytes.assign(shape.batch * shape.columns * features * bytesOf(module.type), 0);
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t row = rows.offsets[b]; row < rows.offsets[b + 1]; ++row) {
      const int64_t column = b * shape.columns + rows.positions[row];
      if (output.name == "encoder_output" && shape.isPad(column, module.pad))
        continue;
      for (int64_t j = 0; j < features; ++j)
        store(result.bytes, column * features + j, view.at(row, j));
    }
  return result;
}

// [batch, heads, queries, keys]
StoredTensor Forward::pairsResult(const View &view) const {
  const Output &output = *view.output;
  const int relation = output.keys / 4;
  const int querySet = relation == XFC_SOURCE_SOURCE ? XFC_SOURCE : XFC_TARGET,
            keySet = relation == XFC_TARGET_TARGET ? XFC_TARGET : XFC_SOURCE;
  const Rectangle &queryShape = querySet == XFC_SOURCE ? source : target,
                  &keyShape = keySet == XFC_SOURCE ? source : target;
  const xfc_rows &queries = batch.shape().sets[querySet], &keyRows = batch.shape().sets[keySet];
  const xfc_keys &keys = batch.shape().keys[output.keys];
  const int64_t heads = elementsOf(output.shape);
  StoredTensor result{
      elementTypeOf(module.type).inTensors, {queryShape.batch, heads, queryShape.columns, keyShape.columns}, {}};
  result.bytes.assign(elementsOf(result.shape) * bytesOf(module.type), 0);
  for (int64_t b = 0; b < queryShape.batch; ++b) {
    const int64_t first = queries.offsets[b], count = queries.offsets[b + 1] - first, width = keys.count[b];
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < keys.limit[first + i]; ++j) {
          const int64_t query = queries.positions[first + i], key = keyRows.positions[keys.keys[keys.begin[b] + j]];
          store(result.bytes, ((b * heads + h) * queryShape.columns + query) * keyShape.columns + key,
                view.at(0, keys.pair_offsets[b] * heads + (h * count + i) * width + j));
        }
  }
  return result;
}

} // namespace xfc
