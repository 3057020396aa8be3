// Converts a model's search settings: generation_config.json to the `generation` of model.json, and back.
#pragma once

#include "Config.h"
#include "Import/Description.h"
#include "plan/Generation.h"

namespace xfc {

// Settings that `generate` knows but which do not change what it returns, unless it draws tokens at random.
const std::set<std::string> &harmlessInSearch();
// Settings that change what it returns and do not exist here, with the values by which they do not.
const nlohmann::json &neutralInSearch();

// The `generation` of the model that `description` (model.json's) describes, from generation_config.json, or from the
// config.json of models that have no such file. Throws an Error that names
// the key.
nlohmann::ordered_json generationOf(const Config &config, const nlohmann::ordered_json &description,
                                    std::vector<std::string> &notes);

// The generation_config.json that makes `generate` search as `generation` says, for this model. Settings that it cannot
// express become notes.
nlohmann::ordered_json generationConfig(const Generation &generation, const Description &model,
                                        std::vector<std::string> &notes);

} // namespace xfc
