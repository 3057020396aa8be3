// Turns parallel text files into pairs of id sequences, a window of lines at a time.
#include "corpora/PairReader.h"
#include "corpora/LinePairs.h"
#include "support/Inputs.h"
#include "support/LineReader.h"
#include <algorithm>
#include <charconv>
#include <exception>
#include <filesystem>

namespace xfc {

void oneByOne(int64_t count, const std::function<void(int64_t)> &body) {
  for (int64_t i = 0; i < count; ++i)
    body(i);
}

// "1 tab", "2 tabs"
static std::string countOf(int64_t count, const std::string &what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

void inChunks(const Parallel &parallel, size_t count, const std::function<void(size_t)> &body) {
  constexpr size_t together = 32; // that a thread takes at a time
  const size_t chunks = (count + together - 1) / together;
  std::vector<std::exception_ptr> faults(chunks);
  parallel(static_cast<int64_t>(chunks), [&](int64_t chunk) {
    const size_t begin = static_cast<size_t>(chunk) * together;
    try {
      for (size_t i = begin; i < std::min(begin + together, count); ++i)
        body(i);
    } catch (...) {
      faults[static_cast<size_t>(chunk)] = std::current_exception();
    }
  });
  for (const std::exception_ptr &fault : faults)
    if (fault)
      std::rethrow_exception(fault);
}

Frame targetFrameOf(const VocabularyPair &vocabularies, const Module &module, Format format) {
  Frame frame{vocabularies.target.targetPrefix(format), {module.eos}};
  frame.prefix.insert(frame.prefix.begin(), module.start);
  return frame;
}

std::vector<PairFiles> PairFiles::each() const {
  std::vector<PairFiles> files;
  files.reserve(tables.size() + sources.size());
  for (const std::string &table : tables)
    files.push_back({{}, {}, {table}});
  for (size_t i = 0; i < sources.size(); ++i)
    files.push_back({{sources[i]}, {targets[i]}, {}});
  const auto of = [](const std::vector<std::string> &prefixes, size_t i) {
    return prefixes.size() > 1 ? std::vector{prefixes[i]} : prefixes;
  };
  for (size_t i = 0; i < files.size(); ++i) {
    if (!weights.empty())
      files[i].weights = {weights[i]};
    files[i].sourcePrefixes = of(sourcePrefixes, i);
    files[i].targetPrefixes = of(targetPrefixes, i);
    files[i].context = context;
    files[i].weightColumn = weightColumn;
    files[i].weighWords = weighWords;
    if (!alignments.empty())
      files[i].alignments = {alignments[i]};
    files[i].alignWords = alignWords;
  }
  return files;
}

JoinedFiles::JoinedFiles(std::vector<std::string> names, std::string expected)
    : files(std::move(names)), expected(std::move(expected)) {
  for (const std::string &file : files) // which may be opened much later
    announceInput(file);
}

bool JoinedFiles::next(std::string &line) {
  for (;;) {
    if (reader && reader->next(line)) {
      ++lines;
      return true;
    }
    if (reader && reader->number() == 0)
      throw Error(reader->name() + ": the file is empty; expected " + expected + " per line");
    if (opened == files.size())
      return false;
    reader = std::make_unique<LineReader>(files[opened++], longestLine);
  }
}

std::string JoinedFiles::names() const {
  std::string text;
  for (const std::string &file : files)
    text += (text.empty() ? "" : " + ") + file;
  return text;
}

double JoinedFiles::fraction() const {
  double read = 0, all = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    std::error_code none;
    const std::uintmax_t size = std::filesystem::file_size(files[i], none);
    const double bytes = none ? 0 : static_cast<double>(size);
    all += bytes;
    read += i + 1 < opened ? bytes : i + 1 == opened ? reader->fraction() * bytes : 0;
  }
  return all > 0 ? read / all : 0;
}

// The frames of lines that follow these prefixes.
static std::vector<Frame> framesOf(const Frame &frame, const std::vector<std::string> &prefixes,
                                   const Vocabulary &vocabulary, Format format, const std::string &flag) {
  std::vector<Frame> frames(std::max<size_t>(prefixes.size(), 1), frame);
  for (size_t i = 0; i < prefixes.size(); ++i) {
    const std::vector<int32_t> ids = vocabulary.encode(prefixes[i], format, flag);
    frames[i].prefix.insert(frames[i].prefix.end(), ids.begin(), ids.end());
  }
  return frames;
}

PairReader::PairReader(const PairFiles &files, const VocabularyPair &vocabularies, const Module &module, Format format,
                       const PairFilter &filter, Parallel parallel)
    : sources(files.tables.empty() ? files.sources : files.tables), targets(files.targets),
      weightFiles(files.weights, "the weight of a pair"), alignments(files.alignments, "the links of a pair"),
      inTables(!files.tables.empty()), weightColumn(files.weightColumn), aligned(!files.alignments.empty()),
      alignWords(files.alignWords), mostLinks(aligned ? xfc::linksPerLabel(module) : 0), weighting(files.weighting()),
      context(files.context), vocabularies(vocabularies), module(module), format(format), filter(filter),
      parallel(std::move(parallel)),
      sourceFrames(framesOf(vocabularies.source.sourceFrame(module, format), files.sourcePrefixes, vocabularies.source,
                            format, "--source-prefix")),
      targetFrames(framesOf(targetFrameOf(vocabularies, module, format), files.targetPrefixes, vocabularies.target,
                            format, "--target-prefix")) {
  if (aligned && mostLinks == 0)
    throw Error(files.alignments.front() +
                ": this executable was compiled without --guided-alignment and takes no links; compile the model again "
                "with `xfc compile --guided-alignment K`, where K is the largest number of links of a target token");
}

void PairReader::splitTable(Line &line) const {
  line.sourceWhere = line.targetWhere = line.weightWhere = sources.where();
  const int64_t tabs = std::ranges::count(line.source, '\t'), wanted = weightColumn ? 2 : 1;
  if (tabs != wanted)
    throw Error(line.sourceWhere + ": has " + countOf(tabs, "tab") + "; expected a source, a tab" +
                (weightColumn ? ", its target, a tab and their weight" : " and its target") +
                (tabs < wanted  ? ""
                 : weightColumn ? " (cut -f1-3 takes three columns)"
                                : " (cut -f1,2 takes two columns; with --tsv-weighting, the third one is a weight)"));
  if (weightColumn) {
    const size_t last = line.source.rfind('\t');
    line.weightText.assign(line.source, last + 1);
    line.source.resize(last);
  }
  const size_t tab = line.source.find('\t');
  line.target.assign(line.source, tab + 1);
  line.source.resize(tab);
}

// Throws Error if only one of the sources and `others` has a next line.
void PairReader::requireBoth(bool more, JoinedFiles &others, bool moreOthers, const std::string &rule) {
  if (more == moreOthers)
    return;
  JoinedFiles &longer = more ? sources : others;
  const std::string alone = longer.where();
  for (std::string rest; longer.next(rest);) {
  }
  throw Error(sources.names() + " has " + std::to_string(sources.number()) + " lines, " + others.names() + " " +
              std::to_string(others.number()) + "; " + rule + ", and " + alone + " has none");
}

// Reads the next line of each side and its weights, without computing ids.
bool PairReader::nextLines(Line &line) {
  const bool more = sources.next(line.source);
  if (!inTables) {
    requireBoth(more, targets, targets.next(line.target),
                "line i of one must be the translation of line i of the other");
    if (more) {
      line.sourceWhere = sources.where();
      line.targetWhere = targets.where();
    }
  } else if (more) {
    splitTable(line);
  }
  if (more) {
    line.sourceFile = sources.file();
    line.targetFile = inTables ? line.sourceFile : targets.file();
  }
  if (weighting != Weighting::None && !weightColumn) {
    requireBoth(more, weightFiles, weightFiles.next(line.weightText), "line i of the weights belongs to pair i");
    if (more)
      line.weightWhere = weightFiles.where();
  }
  if (aligned) {
    requireBoth(more, alignments, alignments.next(line.alignmentText),
                "line i of the alignments holds the links of pair i");
    if (more)
      line.alignmentWhere = alignments.where();
  }
  return more;
}

// Reads the weights of a pair whose target has so many tokens, without start and eos.
void PairReader::readWeights(Line &line, size_t tokens) const {
  line.weights.clear();
  constexpr std::string_view blanks = " \t\r";
  for (std::string_view rest = line.weightText;;) {
    rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
    if (rest.empty())
      break;
    const std::string_view word = rest.substr(0, rest.find_first_of(blanks));
    rest.remove_prefix(word.size());
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || !(value >= 0) ||
        value > std::numeric_limits<float>::max())
      throw Error(line.weightWhere + ": '" + std::string(word.substr(0, 40)) +
                  "' is not a weight; expected a number from 0 to 3.4e38, such as 0.5");
    line.weights.push_back(static_cast<float>(value) + 0.0F); // -0 becomes 0
  }
  const size_t given = line.weights.size();
  auto has = [&] { return line.weightWhere + ": has " + countOf(static_cast<int64_t>(given), "weight"); };
  if (weighting == Weighting::Sentence && given != 1)
    throw Error(has() +
                "; expected one for the pair (with --data-weighting-type word, one for each token of the target)");
  // A pair with an empty target is skipped, as is one whose target is too long, which may be encoded only in part.
  if (weighting != Weighting::Word || tokens == 0 ||
      (module.maxTargetLength > 0 && static_cast<int64_t>(tokens) + 1 > module.maxTargetLength))
    return;
  if (given != tokens && given != tokens + 1)
    throw Error(has() + ", but the target (" + line.targetWhere + ") has " +
                countOf(static_cast<int64_t>(tokens), "token") +
                "; expected a weight for each that `encode --target` prints, and optionally one for eos");
  line.weights.resize(tokens + 1, 1);
}

// Reads the links of a pair that is used: one of which a side is empty or too long may be encoded only in part.
void PairReader::readAlignment(Line &line) const {
  line.wordsDiffer = false;
  line.links = readLinks(line.alignmentText, line.alignmentWhere);
  if (line.links.empty() || !fits(line))
    return;
  auto side = [](std::span<const int32_t> ids, const Frame &frame) {
    return AlignedSide{ids, frame.prefix.size(), ids.size() - frame.prefix.size() - frame.suffix.size()};
  };
  const AlignedSide source = side(line.sourceIds, frameOf(sourceFrames, line.sourceFile)),
                    target = side(line.targetIds, frameOf(targetFrames, line.targetFile));
  if (alignWords) {
    const auto sourceWords = wordsOf(line.source, source.line(), vocabularies.source),
               targetWords = wordsOf(line.target, target.line(), vocabularies.target);
    line.wordsDiffer = sourceWords.empty() || targetWords.empty();
    line.links = line.wordsDiffer ? std::vector<Link>()
                                  : linksOfWords(line.links, sourceWords, targetWords, line.alignmentWhere);
  }
  line.links = placedLinks(std::move(line.links), source, target, mostLinks, module.pad, line.alignmentWhere);
}

void PairReader::tokenize(Line &line) const {
  line.targetIds = framed(vocabularies.target.encode(line.target, format, line.targetWhere, module.maxTargetLength),
                          frameOf(targetFrames, line.targetFile));
  line.sourceIds = framed(vocabularies.source.encode(line.source, format, line.sourceWhere, module.maxLength),
                          frameOf(sourceFrames, line.sourceFile));
}

void PairReader::encode(Line &line) const {
  tokenize(line);
  for (const auto &[sourceBytes, targetBytes] : line.context) {
    if (fits(line))
      break;
    line.source.erase(0, sourceBytes);
    line.target.erase(0, targetBytes);
    tokenize(line);
  }
  if (weighting != Weighting::None) // start and eos have no weight of their own
    readWeights(line, line.targetIds.empty() ? 0 : line.targetIds.size() - 2);
  if (aligned)
    readAlignment(line);
}

// Puts the lines before it in front of this one, which comes next.
void PairReader::addContext(Line &line) {
  line.context.clear();
  if (context.sentences == 0)
    return;
  const auto isBlank = [](const std::string &text) { return text.find_first_not_of(" \t\r") == std::string::npos; };
  const bool noSource = isBlank(line.source), noTarget = isBlank(line.target);
  if (const std::pair files(line.sourceFile, line.targetFile); files != before.files || (noSource && noTarget)) {
    before.files = files;
    before.lines.clear();
  }
  if (noSource || noTarget)
    return;
  std::string source, target;
  for (const auto &[sourceLine, targetLine] : before.lines) {
    source += sourceLine + context.separator;
    target += targetLine + context.separator;
    line.context.emplace_back(sourceLine.size() + context.separator.size(),
                              targetLine.size() + context.separator.size());
  }
  before.lines.emplace_back(line.source, line.target);
  if (std::ssize(before.lines) > context.sentences)
    before.lines.pop_front();
  line.source.insert(0, source);
  line.target.insert(0, target);
}

// Whether no side is empty or longer than the model takes.
bool PairReader::fits(const Line &line) const {
  const auto source = static_cast<int64_t>(line.sourceIds.size()), target = static_cast<int64_t>(line.targetIds.size());
  return source > 0 && target > 0 && (module.maxLength <= 0 || source <= module.maxLength) &&
         (module.maxTargetLength <= 0 || target - 1 <= module.maxTargetLength);
}

// Begins to read the lines of the next window.
void PairReader::readAhead() {
  reading = std::async(std::launch::async, [this] {
    auto &[lines, count, fraction] = upcoming;
    count = 0;
    for (size_t bytes = 0; count < windowLines && bytes < windowBytes; ++count) {
      if (count == lines.size())
        lines.emplace_back();
      if (!nextLines(lines[count]))
        break;
      addContext(lines[count]);
      bytes += lines[count].source.size() + lines[count].target.size() + lines[count].weightText.size() +
               lines[count].alignmentText.size();
    }
    fraction = sources.fraction();
  });
}

// While this window's lines are tokenized and used, the next one's are read and decompressed.
bool PairReader::next(const Use &use) {
  if (!reading.valid())
    readAhead();
  reading.get(); // throws what reading has thrown
  std::swap(window, upcoming);
  auto &[lines, count, fraction] = window;
  if (count > 0)
    readAhead();

  inChunks(parallel, count, [&](size_t i) { encode(lines[i]); });

  for (size_t i = 0; i < count; ++i) {
    const std::vector<int32_t> &source = lines[i].sourceIds, &target = lines[i].targetIds;
    if (source.empty() || target.empty()) {
      ++counts.skippedEmpty;
    } else if (!fits(lines[i])) {
      ++counts.skippedLong;
    } else if (isWanted(lines[i])) {
      counts.add(source, target, lines[i].weights, lines[i].links);
      wordsDiffer += lines[i].wordsDiffer;
      used = &lines[i];
      use(source, target, lines[i].weights);
    }
  }
  if (count == 0 && counts.pairs == 0)
    throw Error(sources.names() + ": no pair is left to use: " + skippedOf(counts) + " (the model's max_length is " +
                std::to_string(module.maxLength) + ")");
  return count > 0;
}

// Also counts the pairs that are not wanted.
bool PairReader::isWanted(const Line &line) {
  auto tokensOf = [](const std::vector<int32_t> &ids, const Frame &frame) {
    return static_cast<int64_t>(ids.size() - frame.prefix.size() - frame.suffix.size());
  };
  const int64_t source = tokensOf(line.sourceIds, frameOf(sourceFrames, line.sourceFile)),
                target = tokensOf(line.targetIds, frameOf(targetFrames, line.targetFile));
  const auto [less, more] = std::minmax(source, target);
  if (less < filter.shortest || (filter.longest > 0 && more > filter.longest)) {
    ++counts.filteredLength;
    return false;
  }
  if (filter.ratio > 0 && static_cast<double>(more) > filter.ratio * static_cast<double>(less)) {
    ++counts.filteredRatio;
    return false;
  }
  return true;
}

std::string skippedOf(const CorpusTotals &totals) {
  std::string text = std::to_string(totals.skippedLong) + " longer than the model's max_length, " +
                     std::to_string(totals.skippedEmpty) + " with an empty side";
  if (totals.filteredLength > 0 || totals.filteredRatio > 0)
    text += ", " + std::to_string(totals.filteredLength) + " by --filter-length, " +
            std::to_string(totals.filteredRatio) + " by --filter-ratio";
  return text;
}

std::string unalignedOf(int64_t pairs) {
  return pairs == 0 ? ""
                    : "note: " + std::to_string(pairs) +
                          " pairs have no links, because the tokens of a line do not form its words";
}

} // namespace xfc
