// Normalizes punctuation by the rules of Moses' script normalize-punctuation.perl: quotes, dashes, and the blanks
// around brackets, punctuation and numbers.
#pragma once

#include <string>
#include <string_view>

namespace xfc {

// Follows sacremoses' MosesPunctNormalizer with its defaults, which treat some quotes differently from the script. The
// language decides two things: commas and dots beside quotes are moved in en, de, es and fr, and U+00A0 between digits
// becomes a comma in de, es, fr and cs (or cz), and a dot in all others. Every other name of a language, eng included,
// is such a one. The line is valid UTF-8; takes time linear in its length.
std::string normalizePunctuation(std::string_view line, std::string_view language);

} // namespace xfc
