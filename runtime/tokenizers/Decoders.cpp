// Implements the decoders of a tokenizer.json.
#include "tokenizers/ByteCharacters.h"
#include "tokenizers/Metaspace.h"
#include "tokenizers/TextPattern.h"
#include "tokenizers/TextSteps.h"
#include "tokenizers/Utf8.h"

namespace xfc {
namespace {

void fuse(std::vector<std::string> &tokens) {
  std::string all;
  for (const std::string &token : tokens)
    all += token;
  tokens.assign(1, all);
}

void byteLevel(std::vector<std::string> &tokens) {
  for (std::string &token : tokens)
    token = charactersAsBytes(token);
  fuse(tokens);
  tokens.front() = validUtf8(tokens.front());
}

// The byte that a token like <0x41> stands for; -1 if none.
int byteOf(const std::string &token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>')
    return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0)
      return -1;
    value = value * 16 + digit;
  }
  return value;
}

// Consecutive bytes become text if they are valid UTF-8; otherwise each byte becomes U+FFFD.
void byteFallback(std::vector<std::string> &tokens) {
  std::vector<std::string> result;
  std::string bytes;
  auto flush = [&] {
    if (bytes.empty())
      return;
    if (validUtf8(bytes) == bytes) {
      result.push_back(bytes);
    } else {
      for (size_t i = 0; i < bytes.size(); ++i)
        result.emplace_back("\xEF\xBF\xBD");
    }
    bytes.clear();
  };
  for (std::string &token : tokens) {
    if (const int byte = byteOf(token); byte >= 0) {
      bytes += static_cast<char>(byte);
    } else {
      flush();
      result.push_back(std::move(token));
    }
  }
  flush();
  tokens = std::move(result);
}

Decoder metaspaceDecoder(const JsonFields &settings) {
  return [space = Metaspace(settings)](std::vector<std::string> &tokens) {
    bool first = space.prepend != Metaspace::Prepend::Never;
    for (std::string &token : tokens) {
      std::string text;
      for (size_t at = 0; at < token.size();) {
        const size_t next = std::min(token.find(space.replacement, at), token.size());
        text.append(token, at, next - at);
        if (next < token.size() && !first)
          text += ' ';
        at = next + space.replacement.size();
      }
      token = std::move(text);
      first = false;
    }
  };
}

// Removes up to `start` and `stop` copies of a character from the beginning and the end of each token.
Decoder strip(const JsonFields &settings) {
  constexpr int64_t most = 1 << 20;
  const std::string content = settings.string("content");
  if (content.empty())
    settings.at("content").refuse("expected a character");
  return [content, start = settings.at("start").integer(0, most),
          stop = settings.at("stop").integer(0, most)](std::vector<std::string> &tokens) {
    for (std::string &token : tokens) {
      size_t begin = 0, end = token.size();
      for (int64_t i = 0; i < start && token.compare(begin, content.size(), content) == 0; ++i)
        begin += content.size();
      for (int64_t i = 0; i < stop && end >= begin + content.size() &&
                          token.compare(end - content.size(), content.size(), content) == 0;
           ++i)
        end -= content.size();
      token = token.substr(begin, end - begin);
    }
  };
}

} // namespace

std::vector<Decoder> readDecoders(const JsonFields &decoder) {
  const std::string type = decoder.string("type");
  if (type == "Sequence") {
    std::vector<Decoder> steps;
    decoder.each("decoders", [&](const JsonFields &part) {
      for (Decoder &step : readDecoders(part))
        steps.push_back(std::move(step));
    });
    return steps;
  }
  if (type == "ByteLevel") {
    decoder.ignore({"add_prefix_space", "trim_offsets", "use_regex"}); // they are the pre-tokenizer's
    return {byteLevel};
  }
  if (type == "Metaspace")
    return {metaspaceDecoder(decoder)};
  if (type == "ByteFallback")
    return {byteFallback};
  if (type == "Fuse")
    return {fuse};
  if (type == "Strip")
    return {strip(decoder)};
  if (type == "Replace")
    return {[pattern = TextPattern(decoder.at("pattern")),
             content = decoder.shortString("content")](std::vector<std::string> &tokens) {
      for (std::string &token : tokens)
        token = pattern.replaced(token, content);
    }};
  decoder.at("type").refuse("unknown decoder; expected one of Sequence, ByteLevel, Metaspace, ByteFallback, Fuse, "
                            "Strip, Replace");
}

} // namespace xfc
