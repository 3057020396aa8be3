// What a run writes down: its log, its events for TensorBoard, and its line on the terminal.
#include "train/run/Records.h"
#include "support/Error.h"
#include "support/Format.h"
#include <algorithm>
#include <cmath>

namespace xfc {

void Records::write(const nlohmann::ordered_json &record) try {
  if (log)
    log->write(record);
  if (events)
    events->write(record, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
} catch (const Error &error) {
  if (failure.empty())
    failure = error.what();
}

int64_t Records::sync() {
  const int64_t count = log->records();
  log->sync();
  if (events)
    events->sync();
  return count;
}

void Records::add(const UpdateResult &result) {
  window.loss += result.loss;
  window.nll += result.nll;
  window.alignment += result.alignment;
  window.norm += result.norm;
  window.labels += result.labels;
  ++window.steps;
}

void Records::recordSteps(const Progress &progress, const Moment &moment, Trace *trace) {
  if (window.steps == 0)
    return;
  const Span span(trace, "log", "record");
  const double elapsed = std::max(std::chrono::duration<double>(Clock::now() - window.from).count(), 1e-9);
  const double labels = static_cast<double>(std::max<int64_t>(window.labels, 1)), nll = window.nll / labels;
  nlohmann::ordered_json record = {{"step", progress.step},
                                   {"epoch", progress.position.epoch + 1},
                                   {"loss", window.loss / labels},
                                   {"nll", nll},
                                   {"ppl", std::exp(nll)},
                                   {"wps", window.labels / elapsed},
                                   {"ups", window.steps / elapsed},
                                   {"gnorm", window.norm / window.steps},
                                   {"lr", moment.rate},
                                   {"wall", moment.seconds},
                                   {"tokens", window.labels}};
  if (guided)
    record["alignment"] = window.alignment / labels;
  write(record);
  bar.update(moment.fraction,
             format("step %lld  epoch %lld  loss %.3f  ppl %.2f  %.0f tokens/s", static_cast<long long>(progress.step),
                    static_cast<long long>(progress.position.epoch) + 1, window.loss / labels, std::exp(nll),
                    window.labels / elapsed));
  window = {};
}

} // namespace xfc
