// `xfc inspect`: what a model costs and looks like, without compiling it.
#pragma once

#include <CLI/CLI.hpp>

namespace xfc {

void addInspect(CLI::App &app);

} // namespace xfc
