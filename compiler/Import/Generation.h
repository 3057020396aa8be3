// Reads `generation` of model.json into the default settings of an executable's searches.
#pragma once

#include "Json.h"
#include "plan/Generation.h"

namespace xfc {

// `vocabulary` is the number of the decoder's tokens. Throws Error, as the readers of JsonValue do.
Generation readGeneration(const JsonValue &json, int64_t vocabulary, int32_t pad, int32_t start, int32_t eos);

} // namespace xfc
