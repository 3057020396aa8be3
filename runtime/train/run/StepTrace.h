// Records the timeline of some steps of a run, of all ranks together.
#pragma once

#include "engine/Engine.h"
#include "ranks/Ranks.h"
#include "trace/Trace.h"
#include "train/run/TrainOptions.h"
#include <cstdint>
#include <optional>

namespace xfc {

class StepTrace {
public:
  // All of these must outlive this.
  StepTrace(const TraceOptions &options, Engine &engine, Ranks &ranks)
      : options(options), engine(engine), ranks(ranks) {}
  // Allocates the timeline, if one is wanted. Concerns one rank alone.
  void begin();
  // Records the step after this one, and the work that follows it, if it is one of those wanted; after the last of them
  // the timeline is written. All ranks call this and finish() at the same steps.
  void beforeStepAfter(int64_t step);
  // Writes what was recorded, even if the run ends early, after this step. All ranks throw CommonError if the first one
  // cannot write the file.
  void finish(int64_t step);

private:
  void recordTo(Trace *trace);
  const TraceOptions &options;
  Engine &engine;
  Ranks &ranks;
  std::optional<Trace> trace; // reset once it is written
};

} // namespace xfc
