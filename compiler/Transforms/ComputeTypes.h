// The types that the products of a program multiply in: one for all, or by the names of their weights.
#pragma once

#include "Dialect/XFC.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace xfc {

struct ComputeTypes {
  using Type = std::optional<ComputeType>; // nullopt: f32
  // A pattern is a glob over the names of weights, including tied ones: `*`, `?`, `[...]`, without commas; a dot is an
  // ordinary character. If several match a name, the last one wins.
  struct Rule {
    std::string pattern;
    Type type;
    // Whether the pattern matches one of the names of a weight.
    bool matches(llvm::ArrayRef<llvm::StringRef> names) const;
  };
  Type others; // the type of products without a weight, and of those whose weight no rule matches
  std::vector<Rule> rules;

  // "TYPE,PATTERN=TYPE,..." or, with f32 for all others, "PATTERN=TYPE,...", where a TYPE is f32, bf16, int8 or int4.
  // Fails with a message that says what is wrong with the text.
  static llvm::Expected<ComputeTypes> parse(llvm::StringRef text);
  bool areAll(Type type) const { return rules.empty() && others == type; }
  bool areAmong(llvm::ArrayRef<ComputeType> types) const;
};

} // namespace xfc
