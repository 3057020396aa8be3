// The steps of a run, its validations and its saves, one after the other until the run ends.
#include "train/run/TrainingLoop.h"
#include "support/Format.h"
#include "support/Signals.h"
#include "support/Terminal.h"
#include <cmath>
#include <utility>

namespace xfc {

using Json = nlohmann::ordered_json;

static constexpr int64_t recordEvery = 10; // steps between records of the log

static Schedule scheduleOf(const TrainOptions &options, const Module &module, const StepBatches &batches) {
  const RateOptions &rate = options.rate;
  const double usual = rate.schedule == Schedule::Kind::Noam ? 1 : 5e-4;
  Schedule schedule{.kind = rate.schedule,
                    .rate = rate.rate > 0 ? rate.rate : usual,
                    .warmup = rate.warmup,
                    .steps = options.length.steps,
                    .width = module.settings.width,
                    .restarts = rate.restarts};
  if (schedule.steps < 0 && schedule.endsWithRun())
    schedule.steps = batches.stepsOfEpochs();
  return schedule;
}

TrainingLoop::TrainingLoop(const TrainOptions &options, const Parts &parts)
    : options(options), parts(parts), schedule(scheduleOf(options, parts.model.module(), parts.batches)),
      trace(options.trace, parts.model.engine(), parts.ranks), stops(options, parts.batches, parts.ranks) {}

void TrainingLoop::begin(const RunFacts &facts, const std::string &configuration) {
  for (int rank = 0; parts.ranks.size() > 1 && rank < parts.ranks.size(); ++rank)
    parts.bar.say(parts.ranks.nameOf(rank));
  parts.ranks.together([&] {
    if (parts.ranks.isFirst())
      progress = parts.state.begin(facts, configuration);
    trace.begin();
  });
  parts.state.share(progress, parts.agreement, parts.ranks);
  if (options.halveRate && parts.keeper.savedStep() < 0) // the first steps can fall back to this
    parts.keeper.saveState(progress, seconds());
  stops.startClock();
}

void TrainingLoop::run() {
  const InterruptGuard guard;
  leaveTimeToSave(parts.model.engine().pool().threads());
  decide();
  const auto isDue = [&](int64_t every) { return progress.step % every == 0; };
  if (progress.step > 0 && isDue(options.validation.every)) // its validation may be missing
    validate();
  while (!stops.finished(progress)) {
    trace.beforeStepAfter(progress.step);
    if (!step())
      continue;
    const bool validating = isDue(options.validation.every), saving = isDue(options.saves.every);
    if (isDue(recordEvery) || validating || saving || stops.finished(progress))
      record();
    if (validating && !stops.isStopping())
      validate();
    if (saving || (stops.wantsSave() && !stops.isStopping()))
      saveNow();
  }
  trace.finish(progress.step);
  end();
  sayEnd();
}

// Returns false if the step failed and the run went back to an earlier one.
bool TrainingLoop::step() {
  ++progress.step;
  parts.keeper.noteChange();
  const Span span(parts.model.engine().trace(), "step", "step", progress.step);
  const StepBatches::Group &group = parts.batches.next(progress.step);
  progress.position = group.end;
  UpdateOptions settings = options.update;
  settings.seed = options.seed;
  settings.settings.rate = rate();
  const UpdateResult result = parts.model.update.run(group.span(), progress.step, settings, parts.batches.upcoming());
  const bool taken = std::isfinite(result.loss) && std::isfinite(result.norm);
  if (taken) {
    parts.records.add(result);
  } else {
    const StepFault fault = faultOf(progress.step, result, parts.model, parts.ranks);
    if (!options.halveRate)
      stopNotFinite(fault);
    fallBack(fault);
  }
  decide();
  return taken;
}

void TrainingLoop::record() {
  parts.records.recordSteps(progress, {rate(), seconds(), stops.fractionDone(progress)}, parts.model.engine().trace());
}

// Validates at most once per step. A validation that is interrupted is repeated by the resumed run.
void TrainingLoop::validate() {
  if (!parts.heldOut.any() || progress.validatedStep == progress.step)
    return;
  validateNow(false);
  decide();
}

// `average`: the parameters are the mean of the kept weights.
void TrainingLoop::validateNow(bool average) try {
  const Span span(parts.model.engine().trace(), "validation", "validation");
  Validated found;
  const auto measure = [&] {
    found = parts.heldOut.measure(parts.model, progress.facts.batchTokens, options.update.smoothing, parts.ranks);
  };
  if (average)
    measure();
  else
    parts.model.states.withAverage(measure);
  const double value = found.valueBy(options.validation.best);
  const bool better = value < progress.best;
  Json record = parts.heldOut.recordOf(found, progress, better);
  record["wall"] = seconds();
  if (average)
    record["average"] = options.saves.average;
  if (better) {
    parts.keeper.saveFirstState(progress, seconds());
    if (average)
      parts.keeper.saveWeights("best.safetensors", progress.step);
    else
      parts.keeper.saveAveraged("best.safetensors", progress.step);
    progress.best = value;
    progress.bestStep = progress.step;
    progress.withoutImprovement = 0;
  } else if (!average) {
    ++progress.withoutImprovement;
  }
  if (!average)
    parts.keeper.keepBest(progress, value);
  progress.validatedStep = progress.step;
  parts.keeper.noteChange();
  parts.records.write(record);
  parts.bar.say(found.lineAt(progress.step) + (better ? "  (best)" : ""));
  parts.records.skipTime();
} catch (const Interrupted &) {
  // The training loop saves and stops.
}

void TrainingLoop::save(bool isPlanned) { parts.keeper.save(progress, seconds(), isPlanned); }

void TrainingLoop::saveNow() {
  save(progress.step % options.saves.every == 0);
  if (stops.wantsSave())
    parts.bar.say(format("saved at step %lld, as requested by SIGUSR1", static_cast<long long>(progress.step)));
  stops.saved();
  decide();
}

void TrainingLoop::end() {
  if (!stops.isStopping())
    validate();
  save(!stops.isStopping() || progress.step % options.saves.every == 0);
  if (!parts.heldOut.any() && progress.averagedStep != progress.step)
    parts.keeper.saveAveraged("best.safetensors", progress.step);
  if (!stops.isStopping())
    writeAverage();
}

// Writes the mean of the kept weights; the run itself continues from its own weights.
void TrainingLoop::writeAverage() {
  if (options.saves.average <= 1 || progress.averagedStep == progress.step || !parts.keeper.hasKept())
    return;
  parts.keeper.takeAverage(progress.step);
  parts.bar.say(
      format("the mean of the last %lld saves is average.safetensors", static_cast<long long>(options.saves.average)));
  if (parts.heldOut.any()) {
    validateNow(true);
    decide();
  } else {
    parts.keeper.saveWeights("best.safetensors", progress.step);
  }
  parts.keeper.takeLast();
  if (stops.isStopping())
    return;
  progress.averagedStep = progress.step;
  parts.keeper.saveState(progress, seconds());
}

void TrainingLoop::sayEnd() const {
  if (const std::string why = parts.ranks.broadcast(parts.records.unwritten()); !why.empty())
    throw CommonError(why + format("; stopped at step %lld and saved; continue with --resume once there is room for it",
                                   static_cast<long long>(progress.step)));
  if (stops.isStopping())
    parts.bar.say(
        format("stopped at step %lld and saved; continue with --resume", static_cast<long long>(progress.step)));
  else
    parts.bar.say(format("done: %lld steps in %s; weights in %s", static_cast<long long>(progress.step),
                         duration(seconds()).c_str(), options.out.c_str()));
}

// Ends the run. The state on disk is of an earlier step and stays valid.
void TrainingLoop::stopNotFinite(const StepFault &fault, const std::string &also) {
  std::string saved;
  if (parts.ranks.isFirst()) {
    Json record = {{"step", progress.step}};
    record.update(fault.record);
    parts.records.write(record);
    parts.records.sync();
    saved = parts.keeper.discardWhatLedTo(progress.step);
  }
  throw CommonError(parts.ranks.broadcast(fault.what + also + saved +
                                          "; train with a smaller --lr, a longer --warmup or a smaller --clip-norm" +
                                          (options.halveRate ? "" : ", or with --on-nan halve")));
}

// Goes back to the last saved state with half the learning rate, or to the state before if the last one led to the
// failure at any rate. Saves at once, so that a run that is stopped afterwards resumes from here.
void TrainingLoop::fallBack(const StepFault &fault) {
  constexpr double least = 1.0 / 1024;
  const double scale = progress.rateScale / 2, soFar = seconds();
  if (scale < least || !parts.keeper.goBackFrom(progress.step))
    stopNotFinite(fault, scale < least ? ", after the rate was halved ten times" : "");
  parts.ranks.together([&] {
    if (!parts.ranks.isFirst())
      return;
    progress = parts.state.load();
    parts.keeper.forgetMissing(progress);
    // The records of the discarded steps stay in the log.
    progress.rateScale = scale;
    progress.seconds = soFar;
    stops.startClock();
    Json record = {{"step", progress.step}};
    record.update(fault.record);
    record["rate_scale"] = scale;
    parts.records.write(record);
    printMessage(MessageKind::Warning,
                 (fault.what + format("; went back to step %lld, and continues with %g times the rate of the schedule",
                                      static_cast<long long>(progress.step), scale))
                     .c_str());
  });
  parts.state.share(progress, parts.agreement, parts.ranks);
  parts.keeper.saveState(progress, seconds());
  parts.batches.forgetAhead();
  parts.records.forgetSteps();
}

} // namespace xfc
