// Object files, which the code generators produce and the linker consumes.
#pragma once

#include <vector>

namespace xfc {

using ObjectFile = std::vector<char>; // its contents, in memory

} // namespace xfc
