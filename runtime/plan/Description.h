// The description of the model inside a serialized plan, without reading the rest.
#pragma once

#include <cstdint>
#include <string>

namespace xfc {

// Module::description. Throws Error as deserialize() does.
std::string deserializeDescription(const uint8_t *bytes, uint64_t size);

} // namespace xfc
