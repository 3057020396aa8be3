// Parallel text into the id sequences a model trains on.
#include "text/Corpus.h"
#include "support/Files.h"

namespace xfc {
namespace {

struct Line {
  std::string text, where;
};

std::vector<Line> readAll(const std::vector<std::string> &files) {
  std::vector<Line> lines;
  for (const std::string &file : files) {
    size_t number = 0;
    for (std::string &text : readLines(file))
      lines.push_back({std::move(text), file + ":" + std::to_string(++number)});
    if (number == 0)
      throw Error(file + ": the file is empty; expected one sentence a line");
  }
  return lines;
}

std::string listed(const std::vector<std::string> &files) {
  std::string text;
  for (const std::string &file : files)
    text += (text.empty() ? "" : " + ") + file;
  return text;
}

} // namespace

void Corpus::store(const std::vector<int32_t> &sequence) {
  sequences.push_back({static_cast<int64_t>(ids.size()), static_cast<int32_t>(sequence.size())});
  ids.insert(ids.end(), sequence.begin(), sequence.end());
  for (int32_t id : sequence)
    hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001b3;
  hash = (hash ^ 0xffffffff) * 0x100000001b3; // where a sequence ends matters too
}

void Corpus::add(const std::vector<int32_t> &source, std::vector<int32_t> target, const Module &module) {
  target.insert(target.begin(), module.start);
  target.push_back(module.eos);
  int64_t sourceLength = source.size(), targetLength = target.size() - 1;
  if ((module.maxLength > 0 && sourceLength > module.maxLength) ||
      (module.maxTargetLength > 0 && targetLength > module.maxTargetLength)) {
    ++skippedLong;
    return;
  }
  store(source);
  store(target);
  sourceTokens += sourceLength;
  targetTokens += targetLength;
}

Corpus::Corpus(const std::vector<std::vector<int32_t>> &sources, const std::vector<std::vector<int32_t>> &targets,
               const Module &module) {
  for (size_t i = 0; i < sources.size(); ++i)
    add(sources[i], targets[i], module);
}

Corpus::Corpus(const std::vector<std::string> &sourceFiles, const std::vector<std::string> &targetFiles,
               const Vocabularies &vocabularies, const Module &module, Format format) {
  std::vector<Line> sourceLines = readAll(sourceFiles), targetLines = readAll(targetFiles);
  if (sourceLines.size() != targetLines.size())
    throw Error(listed(sourceFiles) + " has " + std::to_string(sourceLines.size()) + " lines, " + listed(targetFiles) +
                " " + std::to_string(targetLines.size()) +
                "; line i of one must be the translation of line i of the other");
  bool sourceEos = module.sourceEos && format != Format::Ids;
  for (size_t i = 0; i < sourceLines.size(); ++i) {
    std::vector<int32_t> source =
        vocabularies.source.encode(sourceLines[i].text, format, sourceLines[i].where, module.maxLength);
    std::vector<int32_t> target =
        vocabularies.target.encode(targetLines[i].text, format, targetLines[i].where, module.maxTargetLength);
    if (source.empty() || target.empty()) {
      ++skippedEmpty;
      continue;
    }
    if (sourceEos)
      source.push_back(module.eos);
    add(source, std::move(target), module);
  }
  if (size() == 0)
    throw Error(listed(sourceFiles) + ": no pair is left to use: " + std::to_string(skippedEmpty) +
                " have an empty side, " + std::to_string(skippedLong) + " are longer than the model's max_length of " +
                std::to_string(module.maxLength) + " tokens");
}

} // namespace xfc
