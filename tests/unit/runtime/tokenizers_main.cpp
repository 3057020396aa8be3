// Prints, for each line of standard input, its ids in a vocabulary with their frame, and the text decoded from them,
// each on a line. Or converts the vocabularies of a Hugging Face folder to vocab.model and target-vocab.model, and
// prints the notes on standard error. tokenizers_check.py compares the output with the original tokenizers.
//
//     runtime_tokenize VOCABULARY
//     runtime_tokenize FOLDER MODEL_TYPE SOURCE_LANGUAGE TARGET_LANGUAGE OUT_FOLDER
#include "support/FileWriter.h"
#include "vocabularies/FolderVocabularies.h"
#include "vocabularies/Vocabulary.h"
#include <cstdio>
#include <iostream>

int main(int count, char **arguments) {
  try {
    if (count == 6) {
      const xfc::FolderVocabularies read =
          xfc::vocabulariesOfFolder(arguments[1], arguments[2], arguments[3], arguments[4]);
      const std::string out = arguments[5];
      for (const std::string &note : read.notes)
        std::fprintf(stderr, "%s\n", note.c_str());
      xfc::writeFile(out + "/vocab.model", read.source);
      if (!read.target.empty())
        xfc::writeFile(out + "/target-vocab.model", read.target);
      return 0;
    }
    const xfc::Vocabulary vocabulary(arguments[1], 0);
    xfc::Module module;
    module.sourceEos = false;
    const xfc::Frame frame = vocabulary.sourceFrame(module, xfc::Format::Text);
    for (std::string line; std::getline(std::cin, line);) {
      std::vector<int32_t> ids = vocabulary.encode(line, xfc::Format::Text, "a line");
      ids.insert(ids.begin(), frame.prefix.begin(), frame.prefix.end());
      ids.insert(ids.end(), frame.suffix.begin(), frame.suffix.end());
      std::cout << vocabulary.decode(ids, xfc::Format::Ids) << '\n'
                << vocabulary.decode(ids, xfc::Format::Text) << '\n';
    }
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
