// Draws a model's architecture as text and as SVG.
#pragma once

#include "Import/Description.h"
#include <string>

namespace xfc {

// An indented outline, with one line per step and its sizes.
std::string drawText(const Description &description);
// Two columns, encoder and decoder, read from the bottom up, with a box for each step, a dashed frame around the
// repeated layer, a bracket for each residual, and arrows from the encoder to the attentions that read it. No scripts,
// no fonts.
std::string drawSvg(const Description &description);

} // namespace xfc
