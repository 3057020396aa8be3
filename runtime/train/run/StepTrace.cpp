// Records the timeline of some steps of a run, of all ranks together.
#include "train/run/StepTrace.h"
#include "support/Terminal.h"
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace xfc {

void StepTrace::begin() {
  if (!options.file.empty())
    trace.emplace(engine.pool().threads());
}

void StepTrace::recordTo(Trace *to) {
  engine.traceTo(to);
  ranks.traceTo(to);
}

void StepTrace::beforeStepAfter(int64_t step) {
  if (!trace)
    return;
  if (step >= options.last)
    return finish(step);
  recordTo(step + 1 >= options.first ? &*trace : nullptr);
}

void StepTrace::finish(int64_t step) {
  if (!trace)
    return;
  recordTo(nullptr);
  std::vector<int64_t> beginnings;
  for (const std::string &beginning : ranks.gather(std::to_string(trace->beginning())))
    beginnings.push_back(std::stoll(beginning));
  const std::vector<std::string> all = ranks.gather(trace->json(
      ranks.rank(), ranks.nameOf(ranks.rank()), trace->beginning() - *std::ranges::min_element(beginnings)));
  ranks.together([&] {
    if (!ranks.isFirst())
      return;
    if (step < options.first)
      std::fprintf(stderr, "%s: %s: the run ended before step %lld, so nothing was traced\n",
                   nameOf(MessageKind::Warning), options.file.c_str(), static_cast<long long>(options.first));
    else
      writeTrace(options.file, all);
    if (const int64_t count = trace->leftOut())
      std::fprintf(stderr, "%s: %s: %lld events were dropped because the trace buffer is full; trace fewer steps\n",
                   nameOf(MessageKind::Warning), options.file.c_str(), static_cast<long long>(count));
  });
  trace.reset();
}

} // namespace xfc
