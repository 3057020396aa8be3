// Sentences of a document that are translated given those before them.
#include "decode/Context.h"
#include "decode/Decoder.h"
#include "support/LineReader.h"
#include "tokenizers/Utf8.h"
#include <algorithm>

namespace xfc {

void DocumentContext::add(std::string_view source, std::string_view translation) {
  if (invalidUtf8(translation) == std::string::npos && !withoutOuterSpace(translation).empty())
    sentences.emplace_back(std::string(source), std::string(translation));
}

SentenceInContext DocumentContext::next(const TranslationModel &model, const std::string &sentence,
                                        const SearchOptions &options, const std::string &where, int64_t most,
                                        const HasRoom &hasRoom) const {
  const Module &module = model.engine->module();
  SentenceInContext alone{encodeSource(model, sentence, Format::Text, where), {}, {}};
  if (alone.source.empty())
    return alone;
  const auto roomIn = [&](const SentenceInContext &one) {
    return sentenceFor(options, 0, std::ssize(one.source), one.prefix, module.maxTargetLength).maxLength -
           std::ssize(options.generation.forcedFirst) - std::ssize(one.prefix);
  };
  const int64_t needed = std::min<int64_t>(2 * std::ssize(alone.source) + 10, roomIn(alone));
  const auto isForced = [&](int32_t id) { return id != module.pad && id != module.start && id != module.eos; };
  const std::string &separator = options.context.separator;
  for (size_t count = std::min(static_cast<size_t>(options.context.sentences), sentences.size()); count > 0; --count) {
    std::string source, target;
    for (const Sentence &before : std::span(sentences).last(count)) {
      source += before.source + separator;
      target += before.translation + separator;
    }
    if (!fits(model, source + sentence, most))
      continue;
    const std::string beginning(withoutOuterSpace(target));
    const std::vector<int32_t> written = model.target->encode(beginning, Format::Text, where, module.maxTargetLength);
    const int64_t tokens = std::ssize(model.target->targetPrefix(Format::Text)) + std::ssize(written);
    if ((module.maxTargetLength > 0 && tokens >= module.maxTargetLength) || !std::ranges::all_of(written, isForced))
      continue;
    SentenceInContext given{encodeSource(model, source + sentence, Format::Text, where),
                            encodePrefix(model, beginning, options, Format::Text, where),
                            {}};
    if (roomIn(given) < needed || (hasRoom && !hasRoom(given.source, given.prefix)))
      continue;
    // The tokens that the context has by itself, too: one that is of both is the sentence's.
    const std::vector<int32_t> read = model.source->encode(std::string(withoutOuterSpace(source)), Format::Text, where);
    const auto own = std::span(given.source).subspan(model.source->sourceFrame(module, Format::Text).prefix.size());
    given.context = {static_cast<size_t>(std::ranges::mismatch(own, read).in1 - own.begin()), given.prefix.size()};
    return given;
  }
  return alone;
}

} // namespace xfc
