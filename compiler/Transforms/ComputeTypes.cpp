// Reads the types of products from text.
#include "ComputeTypes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/GlobPattern.h"

using namespace mlir;

namespace xfc {

static llvm::Expected<ComputeTypes::Type> typeOf(StringRef name) {
  if (name == "f32")
    return std::nullopt;
  if (ComputeTypes::Type type = symbolizeComputeType(name))
    return type;
  return llvm::createStringError("expected f32, bf16, int8 or int4, found '" + name + "'");
}

llvm::Expected<ComputeTypes> ComputeTypes::parse(StringRef text) {
  ComputeTypes types;
  SmallVector<StringRef> parts;
  text.split(parts, ',');
  for (auto [i, part] : llvm::enumerate(parts)) {
    const auto [pattern, name] = part.contains('=') ? part.rsplit('=') : std::pair<StringRef, StringRef>("", part);
    if (!part.contains('=') && i > 0)
      return llvm::createStringError("expected PATTERN=TYPE after the first ',', found '" + part +
                                     "'; a pattern has no ','");
    llvm::Expected<Type> type = typeOf(name);
    if (!type)
      return type.takeError();
    if (!part.contains('=')) {
      types.others = *type;
      continue;
    }
    if (llvm::Expected<llvm::GlobPattern> glob = llvm::GlobPattern::create(pattern); !glob)
      return llvm::createStringError("'" + pattern + "' is not a pattern: " + llvm::toString(glob.takeError()));
    types.rules.push_back({pattern.str(), *type});
  }
  return types;
}

bool ComputeTypes::areAmong(ArrayRef<ComputeType> types) const {
  auto isAmong = [&](Type type) { return !type || llvm::is_contained(types, *type); };
  return isAmong(others) && llvm::all_of(rules, [&](const Rule &rule) { return isAmong(rule.type); });
}

bool ComputeTypes::Rule::matches(ArrayRef<StringRef> names) const {
  const auto glob = llvm::cantFail(llvm::GlobPattern::create(pattern)); // parse has checked it
  return llvm::any_of(names, [&](StringRef name) { return glob.match(name); });
}

} // namespace xfc
