// Numbers and words as printf writes them.
#pragma once

#include <string>

namespace xfc {

// What printf would print, however long that is.
[[gnu::format(printf, 1, 2)]] std::string format(const char *pattern, ...);

} // namespace xfc
