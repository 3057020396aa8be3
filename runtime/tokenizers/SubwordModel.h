// The model of a tokenizer.json: splits a word into subwords and returns their ids.
#pragma once

#include "tokenizers/JsonFields.h"
#include "tokenizers/TokenTable.h"
#include "tokenizers/Tokenizer.h"
#include <memory>
#include <vector>

namespace xfc {

class SubwordModel {
public:
  virtual ~SubwordModel() = default;
  // Appends the ids of a word's subwords, and the texts of the unknown ones among them; `sampling` and `unknowns` may
  // be null.
  virtual void encode(std::string_view word, const SegmentationSampling *sampling, std::vector<int32_t> &ids,
                      std::vector<std::string> *unknowns) const = 0;
  virtual int32_t unknown() const = 0; // -1 if there is none
  const TokenTable &tokens() const { return table; }

protected:
  // Appends the ids of the tokens <0x00> to <0xFF>, which spell bytes that no other token covers; returns false if any
  // of them is missing.
  bool appendBytes(std::string_view text, std::vector<int32_t> &ids) const;
  TokenTable table;
};

// Both throw an Error that names the member.
std::unique_ptr<SubwordModel> readBytePairModel(const JsonFields &model);
std::unique_ptr<SubwordModel> readUnigramModel(const JsonFields &model);

} // namespace xfc
