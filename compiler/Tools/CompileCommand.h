// The verbs of `xfc` that compile.
#pragma once

#include <CLI/CLI.hpp>

namespace xfc {

void addCompile(CLI::App &app);
void addPhases(CLI::App &app);

} // namespace xfc
