// The one exception a user may cause: what is wrong, where, what was expected, what to do, in one line.
#pragma once

#include <stdexcept>
#include <string>

namespace xfc {

// Caught in main, printed as "error: <what>", exit status 1.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

} // namespace xfc
