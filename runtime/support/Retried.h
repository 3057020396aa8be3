// Repeats system calls that a signal interrupts.
#pragma once

#include <cerrno>

namespace xfc {

// Returns the call's result, repeating the call as long as it fails with EINTR.
template <typename Call> auto retried(Call call) {
  for (;;)
    if (auto result = call(); result >= 0 || errno != EINTR)
      return result;
}

} // namespace xfc
