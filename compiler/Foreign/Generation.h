// How a model is searched with: generation_config.json into the `generation` of model.json.
#pragma once

#include "Config.h"

namespace xfc {

// The `generation` of a model with these `tokens` (of model.json), from generation_config.json, or from the config.json
// of models that have no such file. What has no counterpart becomes a note. Throws Error naming the key.
nlohmann::ordered_json generationOf(const Config &config, const nlohmann::ordered_json &tokens,
                                    std::vector<std::string> &notes);

} // namespace xfc
