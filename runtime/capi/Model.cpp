// Models in the C interface: opening, description, and the calls that need neither a search nor a training.
#include "capi/Handles.h"
#include "decode/Defaults.h"
#include "decode/Flags.h"
#include "decode/Forward.h"
#include "decode/Score.h"
#include "engine/Safetensors.h"
#include "plan/Programs.h"
#include "support/CommandLine.h"
#include "support/Signals.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

namespace xfc {
namespace {

void open(const char *path, const char *const *words, OpenModel &opened) {
  ModelOptions options;
  options.quiet = true;
  options.warn = [&opened](const std::string &warning) { opened.warnings += warning + "\n"; };
  CommandLine app;
  options.addEnsembleTo(app);
  options.addDraftTo(app);
  options.addRescorerTo(app);
  options.addShortlistTo(app);
  addWorkers(app, options.workers);
  options.addVocabularyTo(app);
  parseOptions(app, wordsOf(words));
  options.quiet = true; // even if --quiet was not given
  if (path && app.given("--weights"))
    throw Error("the model is given twice: as a path, and by --weights");
  if (path) { // the first of an ensemble, if there are others
    options.model = options.weights = options.packed = {};
    options.takePath(path);
    options.others = app.option("--model").texts();
  }

  const SignalsBlocked blocked;
  TranslationModel model;
  if (options.model.empty() && options.weights.empty() && options.packed.empty()) {
    for (const char *beside : {"--ensemble-weights", "--ensemble-library", "--draft", "--rescore", "--shortlist"})
      if (app.given(beside))
        throw Error(std::string(beside) +
                    " goes with a trained model, but neither a path nor --model nor --weights is given; without them, "
                    "weights are random");
    model = {makeEngine(threadsOfWorkers(options.threads, options.workers).front(), options.device), nullptr, nullptr,
             options.warn};
    const Module &module = model.engine->module();
    module.requireTranslator();
    if (options.format != Format::Ids && options.vocabulary.empty())
      throw Error("no vocabulary: give --vocab FILE, or --format ids if the lines are ids");
    LoadedVocabularies loaded = loadVocabularies(options.vocabulary, options.targetVocabulary, module);
    model.source = std::move(loaded.source);
    model.target = std::move(loaded.target);
    constexpr uint64_t seed = 1; // the default of `train`
    initializeParameters(*model.engine, seed);
    model.addWorkers(options.threads, options.workers);
  } else {
    model = loadModel(options);
  }
  opened.format = options.format;
  opened.generation = generationOf(model.engine->module(), options.model);
  opened.model = std::move(model);
}

// Throws Error for an id that is below the least, or that the vocabulary does not have.
void checkIds(std::span<const int32_t> ids, int32_t least, int64_t vocabulary, const char *name) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < least || ids[i] >= vocabulary)
      throw Error("'" + std::string(name) + "': number " + std::to_string(i) + " is " + std::to_string(ids[i]) + ", " +
                  rangeOfIds(least, vocabulary));
}

const Vocabulary &vocabularyOf(const OpenModel &opened, xfc_side side) {
  require(side == XFC_SIDE_SOURCE || side == XFC_SIDE_TARGET, "the side is neither source nor target");
  return side == XFC_SIDE_SOURCE ? *opened.model.source : *opened.model.target;
}

Rectangle rectangleOf(const int32_t *ids, size_t batch, size_t columns, int32_t least, int64_t vocabulary,
                      const char *name) {
  size_t count = 0;
  require(!__builtin_mul_overflow(batch, columns, &count) && count <= PTRDIFF_MAX / sizeof(float),
          "the batch has too many ids");
  const std::span<const int32_t> all(ids, count);
  checkIds(all, least, vocabulary, name);
  return {static_cast<int64_t>(batch), static_cast<int64_t>(columns), {all.begin(), all.end()}, {}};
}

} // namespace
} // namespace xfc

using namespace xfc;

int xfc_api_version(void) { return XFC_API_VERSION; }
const char *xfc_version(void) { return XFC_VERSION; }

xfc_status xfc_open(const char *path, const char *const *options, xfc_model **model) {
  if (!model)
    return XFC_MISUSE;
  *model = nullptr;
  try {
    *model = new xfc_model{std::make_shared<OpenModel>()};
  } catch (...) {
    return XFC_OUT_OF_MEMORY;
  }
  OpenModel &opened = *(*model)->open;
  return guarded(opened, [&] { open(path, options, opened); });
}

xfc_status xfc_share(xfc_model *model, xfc_model **other) {
  if (!model || !other)
    return XFC_MISUSE;
  *other = nullptr;
  return guardedOpen(*model->open, [&] {
    const OpenModel &opened = *model->open;
    if (opened.training)
      throw Error("the model is being trained, so it cannot be shared; close the training first");
    const SignalsBlocked blocked;
    auto shared = std::make_unique<xfc_model>(std::make_shared<OpenModel>());
    OpenModel &its = *shared->open;
    its.model = opened.model.sharing();
    its.model.warn = [&its](const std::string &warning) { its.warnings += warning + "\n"; };
    its.generation = opened.generation;
    its.format = opened.format;
    its.steps = opened.steps;
    its.shared = opened.shared;
    *other = shared.release();
  });
}

void xfc_close(xfc_model *model) { delete model; }

const char *xfc_message(const xfc_model *model) { return model ? model->open->message.c_str() : ""; }
const char *xfc_warnings(const xfc_model *model) { return model ? model->open->warnings.c_str() : ""; }

xfc_status xfc_describe(xfc_model *model, xfc_info *info) {
  if (!model || !info)
    return XFC_MISUSE;
  return guardedOpen(*model->open, [&] {
    const Module &module = model->open->module();
    int64_t parameters = 0;
    for (const Parameter &parameter : module.parameters)
      parameters += elementsOf(parameter.shape);
    *info = {module.model.c_str(), module.hash.c_str(),    parameters, module.sourceVocab, module.targetVocab,
             module.maxLength,     module.maxTargetLength, module.pad, module.start,       module.eos};
  });
}

xfc_status xfc_encode(xfc_model *model, xfc_side side, const char *line, int32_t *ids, size_t room, size_t *count) {
  if (!model || !line || !count || (!ids && room > 0))
    return XFC_MISUSE;
  return guardedOpen(*model->open, [&] {
    const OpenModel &opened = *model->open;
    const Vocabulary &vocabulary = vocabularyOf(opened, side);
    const std::string text = linesOf(&line, 1, "line").front();
    Frame frame{vocabulary.targetPrefix(opened.format), {}};
    if (side == XFC_SIDE_SOURCE)
      frame = vocabulary.sourceFrame(opened.module(), opened.format);
    const std::vector<int32_t> all = framed(vocabulary.encode(text, opened.format, "line 1"), frame);
    std::copy_n(all.begin(), std::min(room, all.size()), ids);
    *count = all.size();
  });
}

xfc_status xfc_decode(xfc_model *model, xfc_side side, const int32_t *ids, size_t count, char *text, size_t room,
                      size_t *size) {
  if (!model || (!ids && count > 0) || !size || (!text && room > 0))
    return XFC_MISUSE;
  return guardedOpen(*model->open, [&] {
    const OpenModel &opened = *model->open;
    const Vocabulary &vocabulary = vocabularyOf(opened, side);
    checkIds({ids, count}, 0, vocabulary.size(), "ids");
    std::string line = vocabulary.decode({ids, ids + count}, opened.format);
    std::replace(line.begin(), line.end(), '\n', ' '); // decoded text stays on one line
    if (room > 0) {
      const size_t written = std::min(room - 1, line.size());
      std::memcpy(text, line.data(), written);
      text[written] = '\0';
    }
    *size = line.size();
  });
}

xfc_status xfc_score(xfc_model *model, const char *const *sources, const char *const *targets, size_t count,
                     double *log_probabilities) {
  if (!model || (!log_probabilities && count > 0))
    return XFC_MISUSE;
  return guardedOpen(*model->open, [&] {
    OpenModel &opened = *model->open;
    opened.warnings.clear();
    const std::vector<std::string> sourceLines = linesOf(sources, count, "source"),
                                   targetLines = linesOf(targets, count, "target");
    std::vector<std::vector<int32_t>> sourceIds, targetIds;
    for (size_t i = 0; i < count; ++i) {
      sourceIds.push_back(encodeSource(opened.model, sourceLines[i], opened.format, placeOf("source", i)));
      if (sourceIds.back().empty())
        throw Error(placeOf("source", i) + ": the line is empty; there is nothing to translate from");
      targetIds.push_back(encodeTarget(opened.model, targetLines[i], opened.format, placeOf("target", i)));
    }
    const std::vector<double> scores = score(opened.model.models(), sourceIds, targetIds, scoreBatchTokens);
    for (size_t i = 0; i < count; ++i)
      if (!std::isfinite(scores[i]))
        throw Error(placeOf("source", i) +
                    ": the model gives no finite log-probability; its weights are broken or too large");
    std::copy(scores.begin(), scores.end(), log_probabilities);
  });
}

xfc_status xfc_forward(xfc_model *model, size_t batch, const int32_t *source, size_t source_columns,
                       const int32_t *target, size_t target_columns, float *logits) {
  if (!model || !source || !target || !logits)
    return XFC_MISUSE;
  return guardedOpen(*model->open, [&] {
    requireSingle(*model->open, "xfc_forward");
    Engine &engine = *model->open->model.engine;
    const Module &module = engine.module();
    Forward forward(engine,
                    rectangleOf(source, batch, source_columns, leastId(module), module.sourceVocab, names::source),
                    rectangleOf(target, batch, target_columns, leastId(module), module.targetVocab, names::target));
    forward.run(false);
    const auto result = forward.results.find(names::logits);
    if (result == forward.results.end())
      throw Error("model '" + module.model + "' has no logits: its decoder has no head");
    const std::vector<uint8_t> &bytes = result->second.bytes;
    if (module.type == DType::F32) {
      std::memcpy(logits, bytes.data(), bytes.size());
      return;
    }
    for (size_t i = 0; i < bytes.size() / sizeof(double); ++i) {
      double number = 0;
      std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
      logits[i] = static_cast<float>(number);
    }
  });
}
