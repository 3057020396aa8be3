// The one exception that a user may cause: its message says in one line what is wrong, where, what was expected, and
// what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace xfc {

// Caught in main, printed as "error: <what>", exit status 1.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

} // namespace xfc
