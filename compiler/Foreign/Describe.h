// Describes a model as other programs do: by the config.json of a family, with the values that the family's reader
// reads, or by the options of CTranslate2. These say less than a model.json, so only reading them back shows whether
// they describe the same model.
#pragma once

#include "Ctranslate2Form.h"
#include "Import/Description.h"
#include <nlohmann/json.hpp>

namespace xfc {

// Each returns the config.json, without model_type, of a model like this one. Throws an Error, "JSON.PATH: what", if
// the model lacks a part that every model of the family has.
nlohmann::ordered_json describeStacks(const Description &model); // BART, mBART, M2M100
nlohmann::ordered_json describeMarian(const Description &model);
nlohmann::ordered_json describeT5(const Description &model);
// Describes the model in CTranslate2's words. Throws an Error, "JSON.PATH: what", if CTranslate2 has none for a part.
ctranslate2::Form describeCtranslate2(const Description &model);

// The first difference between what the two compute: "JSON.PATH: VALUE, where FAMILY has VALUE", or "". Dropout may
// differ, and so may the unknown token, which config.json does not contain.
std::string differenceFrom(const Description &model, const Description &other, const std::string &family);

} // namespace xfc
