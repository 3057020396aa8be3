// The model of a tokenizer.json: a word into the ids of its parts.
#pragma once

#include "tokenizers/JsonFields.h"
#include "tokenizers/TokenTable.h"
#include <memory>
#include <vector>

namespace xfc {

class SubwordModel {
public:
  virtual ~SubwordModel() = default;
  // Appends the ids of a word's parts.
  virtual void encode(std::string_view word, std::vector<int32_t> &ids) const = 0;
  virtual int32_t unknown() const = 0; // -1: none
  const TokenTable &tokens() const { return table; }

protected:
  // The ids of the tokens <0x00> to <0xFF>, which spell bytes that are in no token; false where they are not all there.
  bool appendBytes(std::string_view text, std::vector<int32_t> &ids) const;
  TokenTable table;
};

// Both throw Error that names the member.
std::unique_ptr<SubwordModel> readBytePairModel(const JsonFields &model);
std::unique_ptr<SubwordModel> readUnigramModel(const JsonFields &model);

} // namespace xfc
