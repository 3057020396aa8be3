// The verbs of a generated executable, listed once for main() and for what tests all of them.
#pragma once

#include "app/Commands.h"
#include "measure/Commands.h"
#include "support/Verb.h"

namespace xfc {

// In the order in which --help lists them.
inline constexpr Verb verbs[] = {
    {"prepare", addPrepare},     {"train", addTrain},     {"translate", addTranslate}, {"serve", addServe},
    {"encode", addEncode},       {"decode", addDecode},   {"shortlist", addShortlist}, {"score", addScore},
    {"evaluate", addEvaluate},   {"average", addAverage}, {"report", addReport},       {"forward", addForward},
    {"selfcheck", addSelfcheck}, {"bench", addBench},     {"pack", addPack},           {"info", addInfo},
};

} // namespace xfc
