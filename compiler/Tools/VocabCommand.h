// `xfc vocab`: turns text into a SentencePiece model with the token ids that our models use.
#pragma once

#include <CLI/CLI.hpp>

namespace xfc {

void addVocab(CLI::App &app);

} // namespace xfc
