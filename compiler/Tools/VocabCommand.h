// `xfc vocab`: turns text into a SentencePiece model with the token ids that our models use.
#pragma once

#include "support/Options.h"

namespace xfc {

void addVocab(Command app);

} // namespace xfc
