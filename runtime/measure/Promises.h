// Checks the promises of bit-identical results (docs/promises.md) on this machine.
#pragma once

#include "engine/Engine.h"

namespace xfc {

// Prints one line per promise, with how many values were compared and how many differ, and fingerprints for comparison
// with other machines. Returns whether all promises hold. `mixes` is the number of random batches; after 30 seconds no
// more are made. Throws Error for models that do not map tokens to tokens.
bool keepsPromises(uint64_t seed, int threads, const DeviceChoice &device, int64_t mixes);

} // namespace xfc
