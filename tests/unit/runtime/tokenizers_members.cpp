// Tests that each member of a tokenizer.json is used, or has no effect, or is told.
#include "support/Error.h"
#include "tokenizers/Tokenizer.h"
#include <algorithm>
#include <cctype>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

using namespace xfc;

namespace {

using Json = nlohmann::json;

const Json byteLevelStep = {
    {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};

// As transformers writes it for BART.
Json ofBart() {
  Json added = Json::array();
  for (const auto &[id, content] : {std::pair{8, "<s>"}, {9, "</s>"}, {10, "<mask>"}, {11, "Q"}})
    added.push_back({{"id", id},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", id == 10},
                     {"rstrip", false},
                     {"normalized", id == 11},
                     {"special", id != 11}});
  return {
      {"version", "1.0"},
      {"truncation", {{"max_length", 5}}},
      {"padding", {{"strategy", "BatchLongest"}}},
      {"added_tokens", added},
      {"normalizer", {{"type", "Lowercase"}}},
      {"pre_tokenizer", byteLevelStep},
      {"decoder", byteLevelStep},
      {"post_processor",
       {{"type", "RobertaProcessing"},
        {"sep", {"</s>", 9}},
        {"cls", {"<s>", 8}},
        {"trim_offsets", true},
        {"add_prefix_space", false}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", "a"},
        {"continuing_subword_prefix", ""},
        {"end_of_word_suffix", ""},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab",
         {{"a", 0}, {"b", 1}, {"c", 2}, {"\u0120", 3}, {"ab", 4}, {"bc", 5}, {"abc", 6}, {"ac", 7}, {"b\u0120", 12}}},
        {"merges", {"b c", "a b", "a bc", "b \u0120"}}}}};
}

// As transformers writes it for mBART, with further steps.
Json ofMbart() {
  const Json metaspace = {{"type", "Metaspace"},      {"replacement", "\u2581"}, {"prepend_scheme", "always"},
                          {"add_prefix_space", true}, {"str_rep", "\u2581"},     {"split", true}};
  const Json parts = {{{"SpecialToken", {{"id", "b"}, {"type_id", 0}}}},
                      {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                      {{"SpecialToken", {{"id", "a"}, {"type_id", 0}}}}};
  return {{"version", "1.0"},
          {"added_tokens", {{{"id", 6}, {"content", "<x>"}}}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Replace"}, {"pattern", {{"String", "yy"}}}, {"content", "a"}},
              {{"type", "Replace"}, {"pattern", {{"Regex", "\\s{2,}"}}}, {"content", " "}},
              {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}},
              {{"type", "Prepend"}, {"prepend", "b"}},
              {{"type", "Lowercase"}}}}}},
          {"pre_tokenizer",
           {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, metaspace}}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {metaspace,
              {{"type", "Replace"}, {"pattern", {{"String", "c"}}}, {"content", "d"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", "b"}, {"start", 1}, {"stop", 1}}}}}},
          {"post_processor",
           {{"type", "Sequence"},
            {"processors",
             {byteLevelStep,
              {{"type", "TemplateProcessing"},
               {"single", parts},
               {"pair", parts},
               {"special_tokens",
                {{"a", {{"id", "a"}, {"ids", {2}}, {"tokens", {"a"}}}},
                 {"b", {{"id", "b"}, {"ids", {3}}, {"tokens", {"b"}}}}}}}}}}},
          {"model",
           {{"type", "Unigram"},
            {"unk_id", 0},
            {"byte_fallback", false},
            {"vocab", Json::array({{"<unk>", 0.0},
                                   {"\u2581", -2.0},
                                   {"a", -1.0},
                                   {"b", -1.5},
                                   {"c", -2.0},
                                   {"11", -1.0},
                                   {"a\u2581", -0.25},
                                   {"<0x7A>", -3.0},
                                   {"\u2581b", -3.0}})}}}};
}

// What a tokenizer makes of lines and of ids, or why it is refused.
std::string madeBy(const Json &file) {
  try {
    const std::unique_ptr<Tokenizer> tokenizer = makeTokenizer(file.dump(), "file");
    Json all = Json::array();
    for (const char *line : {"abc", "abc b c", "ac", "aqb", "ca ab", " <mask> ab  a ", "a<mask>b", "yyb11C", "<x>a <x>",
                             "zz e\u0301", "bcb", ""})
      all.push_back(tokenizer->encode(line));
    for (const std::vector<int32_t> &ids : std::vector<std::vector<int32_t>>{
             {0, 1, 2, 3}, {3, 4, 5, 3}, {3, 3, 2, 3, 3}, {1, 2, 6, 4}, {2, 10, 2}, {8, 2, 9}, {6, 7, 1}})
      all.push_back(tokenizer->decode(ids));
    if (const Frame *frame = tokenizer->frame())
      all.push_back({frame->prefix, frame->suffix});
    const SpecialTokens special = tokenizer->special();
    all.push_back({special.pad, special.unk, special.bos, special.eos});
    return all.dump();
  } catch (const Error &error) {
    return error.what();
  }
}

// Other values of the same type, of which one should make a difference wherever any does.
std::vector<Json> othersOf(const Json &value) {
  if (value.is_boolean())
    return {!value.get<bool>()};
  if (value.is_string())
    return {value.get<std::string>() + "b", "", "c"};
  return {value.get<double>() + 1, value.get<double>() - 1, value.get<double>() + 50};
}

// The name of the innermost member that a path leads to.
std::string memberOf(const std::string &path) {
  std::string member;
  for (size_t begin = 1, end = 0; begin < path.size(); begin = end + 1) {
    end = std::min(path.find('/', begin), path.size());
    if (std::isdigit(static_cast<unsigned char>(path[begin])) == 0)
      member = path.substr(begin, end - begin);
  }
  return member;
}

// Puts a member that no tokenizer has into each object, one at a time, and calls use(path of the object, changed file).
template <typename Use> void withUnknown(const Json &file, const Json &part, const std::string &path, Use use) {
  static const std::set<std::string> maps = {"vocab", "special_tokens"};
  static const std::set<std::string> wholes = {"truncation", "padding", "pair", "Sequence"}; // which nothing is read of
  if (wholes.contains(memberOf(path)))
    return;
  if (part.is_object() && !maps.contains(memberOf(path))) {
    Json changed = file;
    changed[Json::json_pointer(path)]["other"] = 7;
    use(path, changed);
  }
  if (part.is_structured())
    for (const auto &[key, member] : part.items())
      withUnknown(file, member, path + "/" + key, use);
}

} // namespace

TEST(TokenizerMembers, ChangeSomethingOrAreDeclared) {
  std::set<std::string> members, effective;
  for (const Json &file : {ofBart(), ofMbart()}) {
    const std::string usual = madeBy(file);
    EXPECT_EQ(makeTokenizer(file.dump(), "file")->ignored(), std::vector<std::string>());
    const Json leaves = file.flatten();
    for (const auto &[path, value] : leaves.items()) {
      members.insert(memberOf(path));
      for (const Json &other : value.is_null() ? std::vector<Json>{0.5} : othersOf(value)) {
        Json changed = file;
        changed[Json::json_pointer(path)] = other;
        if (madeBy(changed) != usual)
          effective.insert(memberOf(path));
      }
    }
  }
  std::set<std::string> without;
  std::set_difference(members.begin(), members.end(), effective.begin(), effective.end(),
                      std::inserter(without, without.end()));
  EXPECT_EQ(without, (std::set<std::string>{"version", "max_length", "strategy", "trim_offsets", "type_id", "tokens",
                                            "str_rep"}));
}

TEST(TokenizerMembers, AreToldIfUnknown) {
  int objects = 0;
  for (const Json &file : {ofBart(), ofMbart()})
    withUnknown(file, file, "", [&](const std::string &path, const Json &changed) {
      ++objects;
      EXPECT_EQ(madeBy(changed), madeBy(file)) << path;
      const std::vector<std::string> told = makeTokenizer(changed.dump(), "file")->ignored();
      ASSERT_EQ(told.size(), 1u) << path;
      EXPECT_TRUE(told[0].ends_with("other: 7 is not known here and is ignored")) << told[0];
    });
  EXPECT_GT(objects, 25);
}
