// The verbs of a generated executable. Each function adds one to the command line; its callback does the work and
// throws Error. One file a verb, in the folder the verb belongs to.
#pragma once

#include <CLI/CLI.hpp>

namespace xfc {

void addTrain(CLI::App &app);     // train/TrainCommand.cpp
void addEvaluate(CLI::App &app);  // train/EvaluateCommand.cpp
void addReport(CLI::App &app);    // train/ReportCommand.cpp
void addTranslate(CLI::App &app); // decode/TranslateCommand.cpp
void addScore(CLI::App &app);     // decode/ScoreCommand.cpp
void addPack(CLI::App &app);      // decode/PackCommand.cpp
void addForward(CLI::App &app);   // core/ForwardCommand.cpp
void addSelfcheck(CLI::App &app); // core/SelfcheckCommand.cpp
void addBench(CLI::App &app);     // core/BenchCommand.cpp
void addInfo(CLI::App &app);      // core/InfoCommand.cpp

} // namespace xfc
