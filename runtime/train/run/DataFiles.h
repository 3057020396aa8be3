// The files that a run trains on: those that it was given, or what a teacher or a preparation makes of them.
#pragma once

#include "ranks/Ranks.h"
#include "support/Progress.h"
#include "train/Checkpoint.h"
#include "train/run/TrainOptions.h"
#include "train/run/TrainedModel.h"
#include <string>
#include <vector>

namespace xfc {

// Either text, or files of prepared pairs.
struct DataFiles {
  PairFiles text;
  std::vector<std::string> prepared;
};

// Has the teacher make the data, and prepares text that is too large for memory. The first rank writes the files into
// the run's folder, where all ranks read them. A resumed run uses those that are there if they were made from the same
// text, of which the folder's data.json tells. `configuration` holds the flags in JSON. All ranks call this at the same
// time; all throw CommonError if the teacher fails, the folder cannot be used, or the text is invalid.
DataFiles makeDataFiles(const TrainOptions &options, const std::string &configuration, const TrainedModel &model,
                        RunFolder &folder, ProgressBar &bar, Ranks &ranks);

// How many tokens of a teacher the executable takes for each label, for messages.
std::string takenTokens(int64_t tokens);

} // namespace xfc
