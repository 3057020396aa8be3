// Makes HTML pages that are one file and load nothing.
#include "support/Markup.h"
#include <cstdint>

namespace xfc {
namespace {

// The classes of series set `color`, so that a figure uses them for lines and for areas alike (currentColor).
constexpr std::string_view commonStyle =
    R"(:root{color-scheme:light dark;--text:#222;--faint:#666;--line:#ddd;--paper:#fff;--mark:#08306b}
.series0{color:#1f5fa8}.series1{color:#c8501e}.series2{color:#2f8f4e}.series3{color:#8a4bb0}.series4{color:#8f6b00}.series5{color:#b8336a}.series6{color:#00808c}.series7{color:#6b6b6b}
@media (prefers-color-scheme:dark){:root{--text:#ddd;--faint:#a0a0a0;--line:#444;--paper:#181a1c;--mark:#7fb8ff}
.series0{color:#6aa9f0}.series1{color:#f0875a}.series2{color:#66c586}.series3{color:#c28fe6}.series4{color:#d0ab3a}.series5{color:#ee7fab}.series6{color:#4fc4cf}.series7{color:#b0b0b0}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--paper);margin:2em auto;padding:0 1em}
svg{max-width:100%;height:auto}.paper{fill:var(--paper)}.ink{fill:var(--text)}.faint{fill:var(--faint)}.rule{stroke:var(--line)}.mark{fill:var(--mark)}
)";

// The bytes of the character that begins at `at`. Text that is not UTF-8 is taken byte by byte.
size_t bytesOfCharacter(std::string_view text, size_t at) {
  size_t end = at + 1;
  if (static_cast<unsigned char>(text[at]) >= 0xC0)
    while (end < text.size() && end - at < 4 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
      ++end;
  return end - at;
}

// U+1100 is E1 84 80 in UTF-8.
int64_t columnsOfCharacter(std::string_view character) { return character >= "\xE1\x84\x80" ? 2 : 1; }

} // namespace

std::string escapeMarkup(std::string_view text) {
  std::string result;
  for (char c : text)
    switch (c) {
    case '&':
      result += "&amp;";
      break;
    case '<':
      result += "&lt;";
      break;
    case '>':
      result += "&gt;";
      break;
    case '"':
      result += "&quot;";
      break;
    default:
      result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  return result;
}

int64_t columnsOf(std::string_view text) {
  int64_t columns = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = bytesOfCharacter(text, at);
    columns += columnsOfCharacter(text.substr(at, bytes));
    at += bytes;
  }
  return columns;
}

std::string escapedEnd(std::string_view text, int64_t most) {
  int64_t columns = columnsOf(text);
  if (columns <= most)
    return escapeMarkup(text);
  while (!text.empty() && columns > most - 1) { // the ellipsis takes one
    const size_t bytes = bytesOfCharacter(text, 0);
    columns -= columnsOfCharacter(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return "…" + escapeMarkup(text);
}

std::string htmlPage(std::string_view title, std::string_view style, std::string_view body, std::string_view script) {
  std::string page = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width\">\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                     "'unsafe-inline'";
  page += script.empty() ? "" : "; script-src 'unsafe-inline'";
  page += "\">\n<title>" + escapeMarkup(title) + "</title>\n<style>";
  page += commonStyle;
  page += style;
  page += "</style></head><body>\n";
  page += body;
  if (!script.empty())
    ((page += "<script>") += script) += "</script>\n";
  return page += "</body></html>\n";
}

} // namespace xfc
