// System calls that a signal cuts short.
#pragma once

#include <cerrno>

namespace xfc {

// What the call returns; it is made again as long as it fails with EINTR.
template <typename Call> auto retried(Call call) {
  for (;;)
    if (auto result = call(); result >= 0 || errno != EINTR)
      return result;
}

} // namespace xfc
