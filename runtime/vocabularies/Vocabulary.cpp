// Converts text to token ids and back, with a tokenizer or as plain ids.
#include "vocabularies/Vocabulary.h"
#include "support/Files.h"
#include "support/Quoted.h"
#include "vocabularies/VocabularyIdentity.h"
#include <algorithm>
#include <charconv>
#include <tuple>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace xfc {

struct Vocabulary::State {
  std::unique_ptr<const Tokenizer> tokenizer; // null: ids only
  std::string bytes, name;
  int64_t size = 0;
};

namespace {

// Calls use(token) for each run of bytes between blanks.
template <typename Use> void forEachToken(std::string_view line, Use use) {
  constexpr std::string_view blanks = " \t\r";
  for (size_t begin = line.find_first_not_of(blanks); begin != std::string_view::npos;) {
    size_t end = std::min(line.find_first_of(blanks, begin), line.size());
    use(line.substr(begin, end - begin));
    begin = line.find_first_not_of(blanks, end);
  }
}

} // namespace

Vocabulary::Vocabulary(std::unique_ptr<State> state) : state(std::move(state)) {}
Vocabulary::Vocabulary(const std::string &file, int64_t expected)
    : Vocabulary(fromBytes(readFile(file, mostLargeBytes), file, expected)) {}
Vocabulary::Vocabulary(int64_t size) : state(std::make_unique<State>()) { state->size = size; }
Vocabulary::~Vocabulary() = default;
Vocabulary::Vocabulary(Vocabulary &&) noexcept = default;

Vocabulary Vocabulary::fromBytes(std::string_view bytes, const std::string &name, int64_t expected) {
  auto state = std::make_unique<State>();
  state->tokenizer = makeTokenizer(bytes, name);
#ifdef __GLIBC__
  malloc_trim(0); // the parse tree of a large vocabulary took tens of megabytes, which glibc would keep for later
#endif
  state->bytes = bytes;
  state->name = name;
  state->size = state->tokenizer->size();
  if (expected != 0 && (state->size > expected || (state->size != expected && state->tokenizer->fillsTables())))
    throw Error(name + ": the vocabulary has " + std::to_string(state->size) +
                " pieces, but this model was compiled for " + std::to_string(expected) +
                "; compile it with `xfc compile --vocab " + name + "` or give the vocabulary it was compiled with");
  if (expected != 0)
    state->size = expected;
  return Vocabulary(std::move(state));
}

// Returns where to end a prefix of about this many bytes: at a blank, which pieces do not cross, or else between
// characters.
static size_t beginningOf(std::string_view line, size_t bytes) {
  if (const size_t blank = line.rfind(' ', bytes); blank != std::string_view::npos && blank > bytes / 2)
    return blank;
  while (bytes > 0 && (line[bytes] & 0xC0) == 0x80)
    --bytes;
  return bytes;
}

std::vector<int32_t> Vocabulary::encode(std::string_view line, Format format, const std::string &where,
                                        int64_t most) const {
  constexpr int64_t margin = 64; // truncating the last piece changes the pieces close to it
  if (most > 0 && !fromEnd())
    for (size_t bytes = static_cast<size_t>(most) * 16 + 4096; bytes < line.size(); bytes *= 2)
      if (std::vector<int32_t> ids = encodeAll(line.substr(0, beginningOf(line, bytes)), format, where);
          static_cast<int64_t>(ids.size()) > most + margin)
        return ids;
  return encodeAll(line, format, where);
}

std::vector<int32_t> Vocabulary::encodeAll(std::string_view line, Format format, const std::string &where) const {
  std::vector<int32_t> ids;
  if (format == Format::Ids) {
    forEachToken(line, [&](std::string_view token) {
      int32_t id = -1;
      auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), id);
      if (error != std::errc() || end != token.data() + token.size() || id < 0 || id >= state->size)
        throw Error(where + ": " + inQuotes(token, 40) + " is not a token id; expected integers from 0 to " +
                    std::to_string(state->size - 1) + " separated by blanks");
      ids.push_back(id);
    });
    return ids;
  }
  if (!state->tokenizer)
    throw Error(where + ": text needs a vocabulary; give --vocab FILE, or --format ids for token ids");
  if (format == Format::Pieces) {
    forEachToken(line, [&](std::string_view token) {
      ids.push_back(state->tokenizer->idOf(token));
      if (ids.back() < 0)
        throw Error(where + ": " + inQuotes(token, 40) + " is not a piece of " + state->name +
                    ", which has none for unknown text");
    });
    return ids;
  }
  try {
    return state->tokenizer->encode(line);
  } catch (const Error &error) {
    throw Error(where + ": " + error.what());
  }
}

std::vector<int32_t> Vocabulary::sample(std::string_view line, const SegmentationSampling &sampling) const {
  return state->tokenizer->sample(line, sampling);
}

bool Vocabulary::canSample() const { return state->tokenizer && state->tokenizer->canSample(); }

Frame Vocabulary::sourceFrame(const Module &module, Format format) const {
  if (format == Format::Ids)
    return {};
  if (state->tokenizer && state->tokenizer->frame())
    return *state->tokenizer->frame();
  return {{}, module.sourceEos ? std::vector<int32_t>{module.eos} : std::vector<int32_t>()};
}

std::vector<int32_t> framed(std::vector<int32_t> ids, const Frame &frame) {
  if (ids.empty())
    return ids;
  ids.insert(ids.begin(), frame.prefix.begin(), frame.prefix.end());
  ids.insert(ids.end(), frame.suffix.begin(), frame.suffix.end());
  return ids;
}

std::vector<int32_t> Vocabulary::targetPrefix(Format format) const {
  const bool framed = format != Format::Ids && state->tokenizer && state->tokenizer->frame();
  return framed ? state->tokenizer->frame()->prefix : std::vector<int32_t>();
}

std::string Vocabulary::decode(const std::vector<int32_t> &ids, Format format,
                               std::span<const std::string> unknowns) const {
  if (format == Format::Text && state->tokenizer)
    return state->tokenizer->decode(ids, unknowns);
  const int32_t unk = special().unk;
  std::string text;
  for (int32_t id : ids) {
    if (!text.empty())
      text += ' ';
    const bool given = format != Format::Ids && id == unk && !unknowns.empty();
    text += given ? unknowns.front() : format == Format::Ids ? std::to_string(id) : piece(id);
    unknowns = unknowns.subspan(given);
  }
  return text;
}

std::vector<std::string> Vocabulary::pieces(std::span<const int32_t> ids, std::string_view line, Format format) const {
  const int32_t unk = special().unk;
  std::vector<std::string> unknowns;
  if (format == Format::Text && state->tokenizer)
    unknowns = state->tokenizer->unknowns(line);
  else if (format == Format::Pieces)
    forEachToken(line, [&](std::string_view token) {
      if (state->tokenizer->idOf(token) == unk)
        unknowns.emplace_back(token);
    });
  std::vector<std::string> pieces;
  for (size_t next = 0; const int32_t id : ids)
    pieces.push_back(id == unk && next < unknowns.size() ? unknowns[next++] : piece(id));
  return pieces;
}

bool Vocabulary::fromEnd() const { return state->tokenizer && state->tokenizer->fromEnd(); }

std::string Vocabulary::piece(int32_t id) const {
  if (!state->tokenizer || id < 0 || id >= state->tokenizer->size())
    return std::to_string(id);
  return state->tokenizer->piece(id);
}

int64_t Vocabulary::size() const { return state->size; }

SpecialTokens Vocabulary::special() const { return state->tokenizer ? state->tokenizer->special() : SpecialTokens(); }

const std::string &Vocabulary::name() const { return state->name; }

const std::string &Vocabulary::bytes() const { return state->bytes; }

void Vocabulary::checkTokens(const Module &module) const {
  if (!state->tokenizer)
    return;
  const SpecialTokens named = special();
  for (auto [what, id, expected] : {std::tuple{"pad", named.pad, module.pad}, {"eos", named.eos, module.eos}})
    if (id != expected && (id >= 0 || state->tokenizer->fillsTables()))
      throw Error(state->name + ": its " + what + " token is " + std::to_string(id) +
                  ", but this model was compiled for " + std::to_string(expected) +
                  "; `xfc vocab` makes vocabularies for the models that ship, and `xfc compile --vocab` takes the ids "
                  "of others");
}

LoadedVocabularies loadVocabularies(const std::string &file, const std::string &targetFile, const Module &module) {
  if (file.empty()) // ids need no vocabulary
    return {std::make_shared<Vocabulary>(module.sourceVocab), std::make_shared<Vocabulary>(module.targetVocab)};
  LoadedVocabularies loaded;
  loaded.source = std::make_shared<Vocabulary>(file, module.sourceVocab);
  loaded.target = targetFile.empty() && module.sourceVocab == module.targetVocab
                      ? loaded.source
                      : std::make_shared<Vocabulary>(targetFile.empty() ? file : targetFile, module.targetVocab);
  loaded.source->checkTokens(module);
  loaded.target->checkTokens(module);
  return loaded;
}

std::vector<std::string> Vocabulary::notes() const {
  std::vector<std::string> notes;
  if (state->tokenizer)
    for (const std::string &member : state->tokenizer->ignored())
      notes.push_back("note: " + state->name + ": " + member);
  return notes;
}

std::vector<std::string> VocabularyPair::notes() const {
  std::vector<std::string> notes = source.notes();
  if (&target != &source)
    for (std::string &note : target.notes())
      notes.push_back(std::move(note));
  return notes;
}

std::string Vocabulary::hash() const { return vocabularyHash(state->bytes); }

} // namespace xfc
