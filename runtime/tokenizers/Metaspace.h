// Settings by which a tokenizer.json writes blanks as a visible character, and prepends one to the line.
#pragma once

#include "tokenizers/JsonFields.h"
#include <string>

namespace xfc {

struct Metaspace {
  enum class Prepend { Always, First, Never };
  std::string replacement;
  Prepend prepend;
  bool split; // whether to split into words that begin with the character

  explicit Metaspace(const JsonFields &settings)
      : replacement(settings.shortString("replacement")), split(settings.boolean("split", true)) {
    const std::string scheme = settings.has("prepend_scheme")               ? settings.string("prepend_scheme")
                               : settings.boolean("add_prefix_space", true) ? "always"
                                                                            : "never";
    if (replacement.empty())
      settings.at("replacement").refuse("expected a character");
    if (scheme != "always" && scheme != "first" && scheme != "never")
      settings.at("prepend_scheme").refuse("expected always, first or never");
    settings.ignore({"add_prefix_space", "str_rep"}); // which older versions wrote beside what is read here
    prepend = scheme == "always" ? Prepend::Always : scheme == "first" ? Prepend::First : Prepend::Never;
  }
};

} // namespace xfc
