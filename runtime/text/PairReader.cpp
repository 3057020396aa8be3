// Turns parallel text files into pairs of id sequences, a window of lines at a time.
#include "text/PairReader.h"
#include "text/LinePairs.h"
#include <algorithm>
#include <exception>
#include <filesystem>

namespace xfc {

void oneByOne(int64_t count, const std::function<void(int64_t)> &body) {
  for (int64_t i = 0; i < count; ++i)
    body(i);
}

std::vector<PairFiles> PairFiles::each() const {
  std::vector<PairFiles> files;
  files.reserve(tables.size() + sources.size());
  for (const std::string &table : tables)
    files.push_back({{}, {}, {table}});
  for (size_t i = 0; i < sources.size(); ++i)
    files.push_back({{sources[i]}, {targets[i]}, {}});
  return files;
}

bool JoinedFiles::next(std::string &line) {
  for (;;) {
    if (reader && reader->next(line)) {
      ++lines;
      return true;
    }
    if (reader && reader->number() == 0)
      throw Error(reader->name() + ": the file is empty; expected one sentence per line");
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

PairReader::PairReader(const PairFiles &files, const VocabularyPair &vocabularies, const Module &module, Format format,
                       const PairFilter &filter, Parallel parallel)
    : sources(files.tables.empty() ? files.sources : files.tables), targets(files.targets),
      inTables(!files.tables.empty()), vocabularies(vocabularies), module(module), format(format), filter(filter),
      parallel(std::move(parallel)), sourceFrame(vocabularies.source.sourceFrame(module, format)),
      targetPrefix(vocabularies.target.targetPrefix(format)) {
  targetPrefix.insert(targetPrefix.begin(), module.start);
}

// Reads the next line of each side, without computing ids.
bool PairReader::nextLines(Line &line) {
  if (inTables) {
    if (!sources.next(line.source))
      return false;
    line.sourceWhere = line.targetWhere = sources.where();
    const size_t tabs = static_cast<size_t>(std::ranges::count(line.source, '\t')), tab = line.source.find('\t');
    if (tabs != 1)
      throw Error(line.sourceWhere + ": has " + std::to_string(tabs) +
                  " tabs; expected a source, a tab and its target" +
                  (tabs > 1 ? " (cut -f1,2 takes two columns)" : ""));
    line.target.assign(line.source, tab + 1);
    line.source.resize(tab);
    return true;
  }
  const bool more = sources.next(line.source), moreTarget = targets.next(line.target);
  if (more && moreTarget) {
    line.sourceWhere = sources.where();
    line.targetWhere = targets.where();
    return true;
  }
  if (!more && !moreTarget)
    return false;
  JoinedFiles &longer = more ? sources : targets;
  const std::string alone = longer.where();
  for (std::string rest; longer.next(rest);) {
  }
  throw Error(sources.names() + " has " + std::to_string(sources.number()) + " lines, " + targets.names() + " " +
              std::to_string(targets.number()) +
              "; line i of one must be the translation of line i of the other, and " + alone + " has none");
}

void PairReader::encode(Line &line) const {
  line.sourceIds = vocabularies.source.encode(line.source, format, line.sourceWhere, module.maxLength);
  line.targetIds = vocabularies.target.encode(line.target, format, line.targetWhere, module.maxTargetLength);
  if (line.sourceIds.empty() || line.targetIds.empty())
    return;
  line.sourceIds.insert(line.sourceIds.begin(), sourceFrame.prefix.begin(), sourceFrame.prefix.end());
  line.sourceIds.insert(line.sourceIds.end(), sourceFrame.suffix.begin(), sourceFrame.suffix.end());
  line.targetIds.insert(line.targetIds.begin(), targetPrefix.begin(), targetPrefix.end());
  line.targetIds.push_back(module.eos);
}

bool PairReader::next(const Use &use) {
  size_t count = 0;
  for (size_t bytes = 0; count < windowLines && bytes < windowBytes; ++count) {
    if (count == window.size())
      window.emplace_back();
    if (!nextLines(window[count]))
      break;
    bytes += window[count].source.size() + window[count].target.size();
  }

  constexpr size_t together = 32; // lines that a thread processes at a time
  const size_t chunks = (count + together - 1) / together;
  std::vector<std::exception_ptr> faults(chunks); // the first in line order is thrown, whichever thread failed first
  parallel(static_cast<int64_t>(chunks), [&](int64_t chunk) {
    const size_t begin = static_cast<size_t>(chunk) * together;
    try {
      for (size_t i = begin; i < std::min(begin + together, count); ++i)
        encode(window[i]);
    } catch (...) {
      faults[static_cast<size_t>(chunk)] = std::current_exception();
    }
  });
  for (const std::exception_ptr &fault : faults)
    if (fault)
      std::rethrow_exception(fault);

  for (size_t i = 0; i < count; ++i) {
    const std::vector<int32_t> &source = window[i].sourceIds, &target = window[i].targetIds;
    if (source.empty() || target.empty()) {
      ++counts.skippedEmpty;
    } else if ((module.maxLength > 0 && static_cast<int64_t>(source.size()) > module.maxLength) ||
               (module.maxTargetLength > 0 && static_cast<int64_t>(target.size()) - 1 > module.maxTargetLength)) {
      ++counts.skippedLong;
    } else if (isWanted(window[i])) {
      counts.add(source, target);
      use(source, target);
    }
  }
  if (count == 0 && counts.pairs == 0)
    throw Error(sources.names() + ": no pair is left to use: " + skippedOf(counts) + " (the model's max_length is " +
                std::to_string(module.maxLength) + ")");
  return count > 0;
}

// Also counts the pairs that are not wanted.
bool PairReader::isWanted(const Line &line) {
  const size_t around = sourceFrame.prefix.size() + sourceFrame.suffix.size(), before = targetPrefix.size();
  const int64_t source = static_cast<int64_t>(line.sourceIds.size() - around),
                target = static_cast<int64_t>(line.targetIds.size() - before) - 1; // and eos
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

} // namespace xfc
