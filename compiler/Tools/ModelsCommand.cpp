// `xfc models`: lists the models that ship.
#include "ModelsCommand.h"
#include "ShippedModels.h"
#include <cstdio>

namespace xfc {

void addModels(Command app) {
  Command command = app.addVerb(
      "models", "list the models that ship, which `xfc compile` and `xfc inspect` take by name", "xfc models");
  command.setWork([] {
    for (const ShippedModel &model : shippedModels())
      std::printf("%-24s %s\n", model.name.c_str(), model.summary.c_str());
  });
}

} // namespace xfc
