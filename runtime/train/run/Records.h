// What a run writes down: its log, its events for TensorBoard, and its line on the terminal.
#pragma once

#include "support/Progress.h"
#include "trace/Trace.h"
#include "train/Checkpoint.h"
#include "train/EventFile.h"
#include "train/Log.h"
#include "train/Update.h"
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace xfc {

// The first rank's; those of other ranks, which are never opened, write nothing.
class Records {
public:
  // `guided`: whether steps have a loss of alignments. The bar must outlive this.
  Records(ProgressBar &bar, bool guided) : bar(bar), guided(guided) {}
  // Opens the log of a run that begins; throws Error as TrainingLog does.
  void begin(const std::string &file) { log.emplace(file); }
  // Opens the log of a run that continues after a step, and had so many records then.
  void resume(const std::string &file, int64_t step, int64_t records) { log.emplace(file, step, records); }
  // Also writes the records to an event file from now on, which continues as the log does.
  void openEvents(const std::string &file, int64_t step) { events.emplace(file, step, log->records()); }

  // If the record cannot be written, because the disk is full or the file may not grow, the run does not end here: it
  // saves first, since there may still be room for its state, and ends then.
  void write(const nlohmann::ordered_json &record);
  // Why a record could not be written; "" if all were.
  const std::string &unwritten() const { return failure; }
  // Syncs to disk what was written, and returns the number of records in the log.
  int64_t sync();

  // Counts a step in.
  void add(const UpdateResult &result);
  // The rate of the last step, the seconds that the run has taken, and the fraction of it that is done.
  struct Moment {
    double rate, seconds, fraction;
  };
  // Writes a record of the steps that were counted in since the last one, if there are any, and shows it.
  void recordSteps(const Progress &progress, const Moment &moment, Trace *trace);
  // Forgets them.
  void forgetSteps() { window = {}; }
  // Leaves the time up to now out of their speed.
  void skipTime() { window.from = Clock::now(); }

private:
  using Clock = std::chrono::steady_clock;
  ProgressBar &bar;
  const bool guided;
  std::optional<TrainingLog> log;
  std::optional<EventFile> events;
  std::string failure;
  // Sums since the last record.
  struct Window {
    double loss = 0, nll = 0, alignment = 0, norm = 0;
    int64_t labels = 0, steps = 0;
    Clock::time_point from = Clock::now();
  } window;
};

} // namespace xfc
