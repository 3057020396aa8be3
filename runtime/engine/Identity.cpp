// Checks which model weights belong to.
#include "engine/Identity.h"
#include "support/Quoted.h"
#include "tensors/Identity.h"

namespace xfc {

Metadata identityOf(const Module &module) { return identityOf(module.model, module.hash, module.description); }

bool namesModel(const Metadata &metadata) { return metadata.contains(modelHashKey); }

void checkModel(const Metadata &metadata, const Module &module, const std::string &file, const std::string &library) {
  auto text = [&](const char *key) {
    auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  if (!namesModel(metadata) || text(modelHashKey) == module.hash)
    return;
  const std::string what = differenceOfModels(text("description"), module.description);
  if (what.empty())
    return;
  throw OtherModel(file + ": these are weights of the model " + inQuotes(text("model")) + " (hash " +
                   escaped(text(modelHashKey), 12) + "), but " + (library.empty() ? "this executable" : library) +
                   " is of '" + module.model + "' (hash " + module.hash.substr(0, 12) + "): " + what + "; use the " +
                   (library.empty() ? "executable they were trained with" : "library of their model") +
                   ", or --force-model to load them anyway");
}

} // namespace xfc
