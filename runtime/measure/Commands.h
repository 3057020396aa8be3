// The verbs that measure an executable on the machine that it runs on: what it computes, and how fast. As those of
// app/Commands.h, each function adds one verb to the command line.
#pragma once

#include "support/Options.h"

namespace xfc {

void addSelfcheck(Command app);
void addBench(Command app);

} // namespace xfc
