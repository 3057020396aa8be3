// What the code generators make and the linker takes.
#pragma once

#include <vector>

namespace xfc {

using ObjectFile = std::vector<char>; // its contents, in memory

} // namespace xfc
