// Formats text as printf does.
#pragma once

#include <string>

namespace xfc {

// The text that printf would print, of any length.
[[gnu::format(printf, 1, 2)]] std::string format(const char *pattern, ...);

} // namespace xfc
