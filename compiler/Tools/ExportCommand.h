// `xfc export`.
#pragma once

#include <CLI/CLI.hpp>

namespace xfc {

void addExport(CLI::App &app);

} // namespace xfc
