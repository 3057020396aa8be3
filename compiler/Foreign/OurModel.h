// Reads a model of ours from a folder, to be exported.
#pragma once

#include "Import/Description.h"
#include "plan/Generation.h"
#include "support/MappedFile.h"
#include "tensors/Safetensors.h"
#include "vocabularies/FolderVocabularies.h"

namespace xfc {

// A model with its weights and vocabularies.
struct OurModel {
  std::string file;        // of the weights
  std::string describedBy; // the file that describes the model
  MappedFile contents;
  Description description;
  Generation generation;
  std::map<std::string, TensorView> tensors; // by the names of parameters
  FolderVocabularies vocabularies;

  // The tensor of a parameter, by any of its names.
  const TensorView *tensor(const std::string &name) const;
};

// The description of the model in such a folder: its model.json, or else what its weights record. Throws Error if there
// is none.
struct FoundDescription {
  std::string text, file; // the file that the text is from
};
FoundDescription descriptionIn(const std::string &folder);

// Reads the --out folder of train, whose best weights are taken, or else its last; or a folder that import made. Throws
// an Error if the weights are not those of the model, or are damaged.
OurModel readOurModel(const std::string &folder);

// Whether the decoder begins with a row of zeros that belongs to a token which nothing else uses: Marian's padding, the
// last row of the tables. CTranslate2 has no such token, so that it cannot be written there.
bool startsFromZero(const OurModel &model);

// For users: by which languages' rules the vocabularies normalize punctuation, which the files of other programs cannot
// say. "" if they do not.
std::string punctuationNote(const FolderVocabularies &vocabularies);

} // namespace xfc
