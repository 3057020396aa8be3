// A tokenizer for a list of words: one per line, or fairseq's dict.txt, whose lines have a word and its frequency. Its
// text consists of words separated by blanks, already segmented.
#include "support/Error.h"
#include "tokenizers/Kinds.h"
#include "tokenizers/TokenTable.h"
#include "tokenizers/Utf8.h"
#include <algorithm>

namespace xfc {
namespace {

class WordList : public Tokenizer {
public:
  explicit WordList(std::string_view contents) {
    std::vector<std::string_view> lines;
    while (!contents.empty()) {
      const size_t end = std::min(contents.find('\n'), contents.size());
      std::string_view line = contents.substr(0, end);
      if (line.ends_with('\r'))
        line.remove_suffix(1);
      lines.push_back(line);
      contents.remove_prefix(std::min(end + 1, contents.size()));
    }
    int32_t next = 0;
    const bool counted =
        std::all_of(lines.begin(), lines.end(), [](std::string_view line) { return !wordOf(line).empty(); });
    if (counted) // dict.txt leaves these out
      for (const char *token : {"<s>", "<pad>", "</s>", "<unk>"})
        table.add(next++, token);
    for (const std::string_view line : lines)
      table.add(next++, counted ? wordOf(line) : line);
    table.finish();
    unk = table.find("<unk>");
    if (unk < 0)
      throw Error("not a vocabulary: neither a SentencePiece model, nor a tokenizer.json, nor a list of words with "
                  "<unk> among them; `xfc vocab` makes one");
    for (const char *token : {"<s>", "<pad>", "<blank>", "</s>", "<unk>"})
      if (const int32_t id = table.find(token); id >= 0)
        silent.push_back(id);
    for (int32_t id = 0; id < next && !joins; ++id)
      joins = table.text(id).ends_with(joint);
  }

  int64_t size() const override { return table.size(); }

  std::vector<int32_t> segment(std::string_view line, const SegmentationSampling *) const override {
    std::vector<int32_t> ids;
    eachWord(line, [&](std::string_view word) { ids.push_back(idOf(word)); });
    return ids;
  }

  std::vector<std::string> unknowns(std::string_view line) const override {
    std::vector<std::string> words;
    eachWord(line, [&](std::string_view word) {
      if (idOf(word) == unk)
        words.emplace_back(word);
    });
    return words;
  }

  // A word that ends with @@ is continued by the next one (subword-nmt).
  std::string join(std::span<const int32_t> ids, std::span<const std::string> unknowns) const override {
    std::string text;
    bool blank = false;
    for (const int32_t id : ids) {
      const bool given = id == unk && !unknowns.empty();
      if (id < 0 || id >= size() || (!given && std::find(silent.begin(), silent.end(), id) != silent.end()))
        continue;
      const std::string_view word = given ? std::string_view(unknowns.front()) : table.text(id);
      unknowns = unknowns.subspan(given);
      if (blank)
        text += ' ';
      blank = !joins || !word.ends_with(joint);
      text += blank ? word : word.substr(0, word.size() - joint.size());
    }
    return text;
  }

  std::string piece(int32_t id) const override { return std::string(table.text(id)); }
  int32_t idOf(std::string_view piece) const override {
    const int32_t id = table.find(piece);
    return id >= 0 ? id : unk;
  }
  SpecialTokens special() const override {
    const int32_t pad = table.find("<pad>");
    return {pad >= 0 ? pad : table.find("<blank>"), unk, table.find("<s>"), table.find("</s>")};
  }

private:
  static constexpr std::string_view joint = "@@";
  template <typename Use> static void eachWord(std::string_view line, Use use) {
    const std::string text = validUtf8(line);
    size_t begin = 0;
    auto take = [&](size_t end) {
      if (begin < end)
        use(std::string_view(text).substr(begin, end - begin));
    };
    for (size_t at = 0; at < text.size();) {
      const size_t here = at;
      if (isWhiteSpace(nextCharacter(text, at))) {
        take(here);
        begin = at;
      }
    }
    take(text.size());
  }
  // The word of a line that ends with a count; "" without one.
  static std::string_view wordOf(std::string_view line) {
    if (line.ends_with(" #fairseq:overwrite"))
      line.remove_suffix(std::string_view(" #fairseq:overwrite").size());
    const size_t blank = line.rfind(' ');
    const bool number = blank != std::string_view::npos && blank + 1 < line.size() &&
                        std::all_of(line.begin() + static_cast<std::ptrdiff_t>(blank) + 1, line.end(),
                                    [](char c) { return c >= '0' && c <= '9'; });
    return number ? line.substr(0, blank) : "";
  }

  TokenTable table;
  std::vector<int32_t> silent; // special tokens, which decoding skips
  int32_t unk = -1;
  bool joins = false;
};

} // namespace

std::unique_ptr<Tokenizer> wordList(std::string_view contents) { return std::make_unique<WordList>(contents); }

} // namespace xfc
