// Reads the model's description from a serialized plan, without the rest.
#pragma once

#include <cstdint>
#include <string>

namespace xfc {

// Module::description. Throws Error as deserialize() does.
std::string deserializeDescription(const uint8_t *bytes, uint64_t size);

} // namespace xfc
