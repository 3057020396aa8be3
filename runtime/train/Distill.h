// Makes the data of a student with its teacher, which is another executable with a model of its own.
#pragma once

#include "corpora/PairReader.h"
#include <string>

namespace xfc {

// The number of translations for each source, or of tokens in the distribution of each label, or both: distributions of
// the labels of translations.
struct TeacherOptions {
  std::string executable, model; // of `xfc compile`, and the folder of its weights; empty: no teacher
  int64_t nBest = 0, distribution = 0;
  bool any() const { return !executable.empty(); }
};

// How the teacher's commands run.
struct TeacherRun {
  Format format = Format::Text;
  int threads = 0; // 0: one for each processor
  bool quiet = false;
};

// Runs the teacher's `translate` on the sources, and writes its translations to a table: a source, a tab, a translation
// and, if there are several for each source, a tab and its share of their probability. Returns the table as text to
// train on. Throws Error if the teacher fails, or if a source holds a tab.
PairFiles translateByTeacher(const TeacherOptions &teacher, const std::vector<std::string> &sources,
                             const std::string &table, const TeacherRun &run);
// Runs the teacher's `prepare --distribution` on the text; writes a file of pairs. Throws Error if the teacher fails.
void prepareByTeacher(const TeacherOptions &teacher, const PairFiles &text, const PairFilter &filter,
                      const std::string &pairs, const TeacherRun &run);

} // namespace xfc
