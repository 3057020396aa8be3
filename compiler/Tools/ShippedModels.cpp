// Finds the models that ship with xfc.
#include "ShippedModels.h"
#include "support/Error.h"
#include "support/Files.h"
#include "support/Json.h"
#include "llvm/Support/FileSystem.h"
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace xfc {

std::vector<ShippedModel> shippedModels() {
  const std::filesystem::path program = llvm::sys::fs::getMainExecutable(nullptr, nullptr);
  const std::filesystem::path folder = program.parent_path().parent_path() / "share/xfc/models";
  std::vector<ShippedModel> models;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::filesystem::path &file = entry->path();
    if (file.extension() != ".json" || file.stem() == "schema")
      continue;
    const nlohmann::json model = parseJson(readFile(file), file.string());
    models.push_back({file.stem(), file, model.value("summary", "")});
  }
  if (models.empty())
    throw Error(folder.string() + ": holds no models; build or install xfc completely");
  std::ranges::sort(models, {}, &ShippedModel::name);
  return models;
}

} // namespace xfc
