// The formats that a model of ours can be exported to.
#include "Export.h"
#include "support/Error.h"
#include "support/Quoted.h"
#include <algorithm>

namespace xfc {

const std::vector<ExportFormat> &exportFormats() {
  static const std::vector<ExportFormat> formats = {{"hf", "a Hugging Face folder", exportHuggingFace},
                                                    {"ctranslate2", "a CTranslate2 folder", exportCtranslate2}};
  return formats;
}

ForeignExport exportForeign(const ExportOptions &options) {
  const auto format = std::find_if(exportFormats().begin(), exportFormats().end(),
                                   [&](const ExportFormat &known) { return known.name == options.format; });
  if (format == exportFormats().end()) {
    std::string known;
    for (const ExportFormat &each : exportFormats())
      known += (known.empty() ? "" : " or ") + each.name;
    throw Error("--to: " + inQuotes(options.format) + " is no format; expected " + known);
  }
  return format->write(options);
}

} // namespace xfc
