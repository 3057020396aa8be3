// A model's architecture as text and as an SVG drawing.
#pragma once

#include "Import/Description.h"
#include <string>

namespace xfc {

// An indented outline, a line a step with its sizes.
std::string drawText(const Description &description);
// Two columns, encoder and decoder, read from the bottom up; a box a step, a dashed frame around the repeated layer,
// a bracket for each residual, and the arrow from the encoder to the attentions that read it. No scripts, no fonts.
std::string drawSvg(const Description &description);

} // namespace xfc
