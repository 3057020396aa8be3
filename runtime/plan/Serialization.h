// Plans as bytes: what the compiler writes into an executable, and the runtime reads there.
#pragma once

#include "plan/Plan.h"
#include <cstdint>
#include <string>
#include <vector>

namespace xfc {

// Raised whenever the serialized plan changes its form or meaning.
constexpr int planVersion = 15;

// Exact inverses. `deserialize` throws xfc::Error if the bytes are not a plan of version planVersion, or if anything
// but its programs is damaged. The bytes must outlive the module and all its copies.
std::vector<uint8_t> serialize(const Module &module);
Module deserialize(const uint8_t *bytes, uint64_t size);
// Module::settings alone, without the rest: each start of an executable needs them. Throws Error as deserialize() does.
ModelSettings deserializeSettings(const uint8_t *bytes, uint64_t size);

} // namespace xfc
