// How a model is searched with: generation_config.json into the `generation` of model.json, and back.
#pragma once

#include "Config.h"
#include "Import/Description.h"
#include "plan/Generation.h"

namespace xfc {

// The `generation` of a model with these `tokens` (of model.json), from generation_config.json, or from the config.json
// of models that have no such file. What has no counterpart becomes a note. Throws Error naming the key.
nlohmann::ordered_json generationOf(const Config &config, const nlohmann::ordered_json &tokens,
                                    std::vector<std::string> &notes);

// The generation_config.json that makes `generate` search as `generation` says, for this model. What cannot be said
// there becomes a note.
nlohmann::ordered_json generationConfig(const Generation &generation, const Description &model,
                                        std::vector<std::string> &notes);

} // namespace xfc
