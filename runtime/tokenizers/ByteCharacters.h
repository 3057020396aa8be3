// The characters that byte-level tokenizers write bytes as: printable ones of Latin-1 for themselves, the others as
// those from U+0100 on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace xfc {

// The bytes of a text, each as its character.
std::string bytesAsCharacters(std::string_view text);
// The way back. A text with a character that stands for no byte stays as it is.
std::string charactersAsBytes(std::string_view text);

} // namespace xfc
