// Maps bytes to the characters that byte-level tokenizers write them as: printable Latin-1 bytes are written as
// themselves, the others as characters from U+0100 on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace xfc {

// Writes each byte of a text as its character.
std::string bytesAsCharacters(std::string_view text);
// The inverse. A text with a character that stands for no byte is returned unchanged.
std::string charactersAsBytes(std::string_view text);

} // namespace xfc
