// What becomes of an exception that nobody catches.
#pragma once

namespace xfc {

// From here on an exception that leaves a thread, a noexcept function or the construction of a global object becomes
// one line "error: ..." and status 1. For programs of our own: a library leaves this to the program that loads it.
void reportUncaught();

} // namespace xfc
