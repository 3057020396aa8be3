// The models that ship with xfc, which commands find by name.
#pragma once

#include <string>
#include <vector>

namespace xfc {

struct ShippedModel {
  std::string name, file, summary; // the summary is one line for people
};
// By name. They are in share/xfc/models/ beside bin/, in a build tree and when installed. Throws Error if none is
// there.
std::vector<ShippedModel> shippedModels();

} // namespace xfc
