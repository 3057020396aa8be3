// Bounds what the text of a module costs, before it is parsed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace xfc {

constexpr size_t mostModuleNesting = 64; // a plan has 12 levels

// What exceeds a limit, and where.
struct ExceededLimit {
  size_t offset;
  std::string what;
};

// MLIR's parser recurses into whatever is nested, and so does all that later visits or prints it: regions, attributes
// and types end the process if they are deep. Names of attributes and types (#name = ..., !name = ...) nest without
// brackets, and each may double what the one before it stands for; operators in affine maps nest without either, so
// maps may only name dimensions, as those of plain kernels do. The text may be no module at all.
std::optional<ExceededLimit> exceededLimit(std::string_view text);

} // namespace xfc
