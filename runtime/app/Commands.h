// The verbs of a generated executable. Each function adds one verb to the command line; its callback does the work and
// throws Error.
#pragma once

#include <CLI/CLI.hpp>

namespace xfc {

void addPrepare(CLI::App &app);
void addTrain(CLI::App &app);
void addEvaluate(CLI::App &app);
void addAverage(CLI::App &app);
void addReport(CLI::App &app);
void addTranslate(CLI::App &app);
void addEncode(CLI::App &app);
void addDecode(CLI::App &app);
void addScore(CLI::App &app);
void addPack(CLI::App &app);
void addForward(CLI::App &app);
void addSelfcheck(CLI::App &app);
void addBench(CLI::App &app);
void addInfo(CLI::App &app);

} // namespace xfc
