// A model into the config.json of a family: what its reader reads, found in the steps of the model. A config says less
// than a model.json, so whether it is that model is seen when it is read again.
#pragma once

#include "Import/Description.h"
#include <nlohmann/json.hpp>

namespace xfc {

// Each is the config.json of a model like this one, but for its model_type. Throws Error, "JSON.PATH: what", where the
// model lacks a part that every model of the family has.
nlohmann::ordered_json describeStacks(const Description &model); // BART, mBART, M2M100
nlohmann::ordered_json describeMarian(const Description &model);
nlohmann::ordered_json describeT5(const Description &model);

// The first difference between what the two compute: "JSON.PATH: VALUE, where FAMILY has VALUE", or "". Dropout and the
// unknown token, which no config.json knows, may differ.
std::string differenceFrom(const Description &model, const Description &other, const std::string &family);

} // namespace xfc
