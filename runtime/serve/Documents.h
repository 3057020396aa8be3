// A text, or a piece of HTML, as the lines or sentences of it that are translated, and what stays as it is between
// them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

class Document {
public:
  // Every line that is not blank is translated.
  static Document ofText(std::string_view text);
  // What stands between tags is translated, one text at a time. Tags, comments, scripts, style sheets, and elements
  // with translate="no" or the class notranslate stay, and so does the space around a text. Any text is taken for HTML.
  static Document ofHtml(std::string_view html);

  // Has the parts of each line that this returns, such as its sentences, in place of the line. The parts of a line are
  // views of it, from left to right, with white space between two of them; they stay as they are, and so does the
  // space.
  void split(const std::function<std::vector<std::string_view>(std::string_view)> &partsOf);

  const std::vector<std::string> &lines() const { return texts; }
  // The document with translations, one for each line, in place of the lines.
  std::string with(std::span<const std::string> translations) const;

private:
  void addHtmlText(std::string_view text);
  void addLine(std::string_view before, std::string line, std::string_view after);

  bool html = false;
  std::vector<std::string> texts;
  std::vector<std::string> between{""}; // before each line, and after the last one
};

} // namespace xfc
