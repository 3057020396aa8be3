// `xfc import`.
#pragma once

#include <CLI/CLI.hpp>

namespace xfc {

void addImport(CLI::App &app);

} // namespace xfc
