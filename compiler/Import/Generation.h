// `generation` of model.json into the settings of searches that an executable begins with.
#pragma once

#include "Json.h"
#include "plan/Generation.h"

namespace xfc {

// For a decoder of so many tokens. Throws Error as the readers of JsonValue do.
Generation readGeneration(const JsonValue &json, int64_t vocabulary, int32_t pad, int32_t eos);

} // namespace xfc
