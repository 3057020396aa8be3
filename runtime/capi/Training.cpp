// Training in the C interface: steps over pairs that the caller gives, and saving weights.
#include "capi/Handles.h"
#include "corpora/Corpus.h"
#include "engine/Safetensors.h"
#include "support/CommandLine.h"
#include "train/Checkpoint.h"
#include "train/Update.h"
#include "train/UpdateFlags.h"
#include <cmath>
#include <cstring>
#include <numeric>

using namespace xfc;

struct xfc_training {
  std::shared_ptr<OpenModel> open;
  UpdateOptions options;
  Update update;
  int64_t step = 0; // number of the last step that was taken

  xfc_training(const std::shared_ptr<OpenModel> &model, const UpdateOptions &options)
      : open(model), options(options), update(*model->model.engine) {
    // The optimizer starts from zero states, whatever an earlier training has left.
    Engine &engine = *open->model.engine;
    const Module &module = engine.module();
    for (std::string_view state : options.optimizer->states)
      if (const OptimizerState *kept = module.findState(state))
        std::memset(engine.optimizerState(state), 0, static_cast<size_t>(module.bytesOf(*kept)));
    engine.statesChanged();
    open->training = true;
  }
  ~xfc_training() { open->training = false; }
};

namespace {

// A line as `train` reads it.
std::vector<int32_t> encodedOf(const OpenModel &opened, xfc_side side, const std::string &line, size_t index) {
  const bool isSource = side == XFC_SIDE_SOURCE;
  const Vocabulary &vocabulary = isSource ? *opened.model.source : *opened.model.target;
  const Frame frame = isSource ? vocabulary.sourceFrame(opened.module(), opened.format)
                               : Frame{vocabulary.targetPrefix(opened.format), {}};
  return framed(vocabulary.encode(line, opened.format, placeOf(isSource ? "source" : "target", index)), frame);
}

} // namespace

xfc_status xfc_training_start(xfc_model *model, const char *const *options, xfc_training **training) {
  if (!model || !training)
    return XFC_MISUSE;
  *training = nullptr;
  return guardedOpen(*model->open, [&] {
    requireSingle(*model->open, "xfc_training_start");
    UpdateFlags flags;
    CommandLine app;
    flags.addTo(app);
    app.addOption("--seed", flags.options.seed, "seed of dropout");
    parseOptions(app, wordsOf(options));
    flags.resolve([&](const std::string &flag) { return app.given(flag); });
    if (model->open->training)
      throw Error("the model is being trained already; close that training first");
    if (model->open->shared.use_count() > 1)
      throw Error("the model's weights are shared with other handles (xfc_share), which read them while they are "
                  "trained; close those, and their searches, first");
    *training = new xfc_training(model->open, flags.options);
  });
}

xfc_status xfc_training_step(xfc_training *training, const char *const *sources, const char *const *targets,
                             size_t count, double rate, xfc_loss *loss) {
  if (!training || !loss)
    return XFC_MISUSE;
  return guardedOpen(*training->open, [&] {
    OpenModel &opened = *training->open;
    opened.warnings.clear();
    if (!(std::isfinite(rate) && rate >= 0))
      throw Error("the learning rate must be a finite number >= 0");
    const std::vector<std::string> sourceLines = linesOf(sources, count, "source"),
                                   targetLines = linesOf(targets, count, "target");
    std::vector<std::vector<int32_t>> sourceIds, targetIds;
    size_t empty = 0;
    for (size_t i = 0; i < count; ++i) {
      std::vector<int32_t> source = encodedOf(opened, XFC_SIDE_SOURCE, sourceLines[i], i),
                           target = encodedOf(opened, XFC_SIDE_TARGET, targetLines[i], i);
      if (source.empty() || target.empty()) {
        ++empty;
        continue;
      }
      sourceIds.push_back(std::move(source));
      targetIds.push_back(std::move(target));
    }
    const Corpus corpus(sourceIds, targetIds, opened.module());
    const int64_t tooLong = corpus.totals().skippedLong;
    if (corpus.size() == 0)
      throw Error("no pair is left to train on: " + std::to_string(empty) + " with an empty side, " +
                  std::to_string(tooLong) + " longer than the model's max_length");
    if (tooLong > 0)
      opened.warnings += "left out: " + std::to_string(tooLong) + " pairs longer than the model's max_length\n";
    if (empty > 0)
      opened.warnings += "left out: " + std::to_string(empty) + " pairs with an empty side\n";

    std::vector<int64_t> pairs(corpus.size());
    std::iota(pairs.begin(), pairs.end(), 0);
    const PairsOfCorpus batch = pairsOf(corpus, std::move(pairs));
    training->options.settings.rate = rate;
    const int64_t step = training->step + 1;
    const UpdateResult result = training->update.run({&batch, 1}, step, training->options);
    const auto labels = static_cast<double>(std::max<int64_t>(result.labels, 1));
    *loss = {step, result.labels, result.loss / labels, result.nll / labels, result.norm};
    if (result.taken) {
      training->step = step;
      ++opened.steps;
    }
    if (const bool finite = std::isfinite(result.loss); !finite || !std::isfinite(result.norm))
      throw Error("step " + std::to_string(step) + ": the " + (finite ? "norm of the gradient" : "loss") +
                  " is NaN or infinite" +
                  (result.taken ? ", and the weights are lost; open the last saved ones, and train with a smaller rate "
                                  "or --clip-norm"
                                : ", so it was not taken, and the weights are those before it; leave these pairs out, "
                                  "or, if others fail too, open the last saved weights and train with a smaller rate "
                                  "or --clip-norm"));
  });
}

void xfc_training_close(xfc_training *training) {
  if (!training)
    return;
  const std::shared_ptr<OpenModel> open = training->open; // the mutex must outlive the lock
  const std::lock_guard<std::mutex> lock(open->mutex);
  delete training;
}

xfc_status xfc_save(xfc_model *model, const char *file) {
  if (!model || !file)
    return XFC_MISUSE;
  return guardedOpen(*model->open, [&] {
    const OpenModel &opened = *model->open;
    requireSingle(opened, "xfc_save");
    Engine &engine = *opened.model.engine;
    if (const TensorView *bad = notFinite(&engine.pool(), weights(engine)))
      throw Error(std::string(file) + ": not written: '" + bad->name + "' holds NaN or infinity");
    saveWeights(engine, file, identityOf(opened.model), opened.steps);
  });
}
