// `xfc compile` and `xfc phases`.
#pragma once

#include <CLI/CLI.hpp>

namespace xfc {

void addCompile(CLI::App &app);
void addPhases(CLI::App &app);

} // namespace xfc
