// The verbs of a generated executable, but for those that measure it (measure/Commands.h). Each function adds one verb
// to the command line; its callback does the work and throws Error.
#pragma once

#include "support/Options.h"

namespace xfc {

void addPrepare(Command app);
void addTrain(Command app);
void addEvaluate(Command app);
void addAverage(Command app);
void addReport(Command app);
void addTranslate(Command app);
void addEncode(Command app);
void addDecode(Command app);
void addShortlist(Command app);
void addScore(Command app);
void addServe(Command app);
void addPack(Command app);
void addForward(Command app);
void addInfo(Command app);

} // namespace xfc
