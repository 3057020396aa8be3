// The promises of equal bits (docs/promises.md), tried on this machine.
#pragma once

#include "engine/Engine.h"

namespace xfc {

// Prints a line for each promise, with how much was compared and how much of it differs, and fingerprints that other
// machines can be compared by. Returns whether all are kept. `mixes` is the number of random batches, of which no more
// are made after 30 seconds. Throws Error for models that do not go from tokens to tokens.
bool keepsPromises(uint64_t seed, int threads, const DeviceChoice &device, int64_t mixes);

} // namespace xfc
