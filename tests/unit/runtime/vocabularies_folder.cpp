// Tests what is told of the settings beside a tokenizer that is imported.
#include "folder.h"
#include "support/FileWriter.h"
#include "vocabularies/FolderVocabularies.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace xfc;

namespace {

using Json = nlohmann::json;

class FolderVocabulariesTest : public FolderTest {
protected:
  FolderVocabulariesTest() {
    tokenizer = {
        {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"__en__", 2}}}, {"merges", Json::array()}}},
        {"added_tokens",
         {{{"id", 3}, {"content", "</s>"}, {"special", true}}, {{"id", 4}, {"content", "__de__"}, {"special", true}}}}};
  }

  std::vector<std::string> notes() {
    writeFile(in("tokenizer.json"), tokenizer.dump());
    writeFile(in("tokenizer_config.json"), settings.dump());
    return vocabulariesOfFolder(in(""), "m2m_100", "__en__", "__de__").notes;
  }

  Json tokenizer, settings = Json::object();
};

} // namespace

TEST_F(FolderVocabulariesTest, SettingsWithoutEffectAreNotTold) {
  settings = {{"tokenizer_class", "M2M100Tokenizer"},
              {"model_max_length", 1024},
              {"name_or_path", "somewhere"},
              {"sp_model_kwargs", Json::object()},
              {"clean_up_tokenization_spaces", false},
              {"language_codes", "m2m100"},
              {"source_lang", "en"},
              {"eos_token", {{"__type", "AddedToken"}, {"content", "</s>"}, {"lstrip", false}, {"normalized", true}}},
              {"added_tokens_decoder", {{"3", {{"content", "</s>"}, {"rstrip", false}, {"special", true}}}}},
              {"extra_special_tokens", {{"image_token", "<image>"}}},
              {"additional_special_tokens", {{{"content", "<extra>"}, {"single_word", true}}}},
              {"chat_template", nullptr},
              {"unheard_of", nullptr}};
  EXPECT_EQ(notes(), std::vector<std::string>());
}

TEST_F(FolderVocabulariesTest, OtherSettingsAreTold) {
  for (const auto &[key, value] :
       std::initializer_list<std::pair<const char *, Json>>{{"unheard_of", 3},
                                                            {"sp_model_kwargs", {{"enable_sampling", true}}},
                                                            {"clean_up_tokenization_spaces", true},
                                                            {"language_codes", "wmt21"},
                                                            {"do_lower_case", true},
                                                            {"add_eos_token", false}}) {
    settings = {{key, value}};
    EXPECT_EQ(notes(), (std::vector<std::string>{in("/tokenizer_config.json: ") + key + ": " + value.dump() +
                                                 " is not known here and is ignored"}));
  }
}

TEST_F(FolderVocabulariesTest, MembersOfTheTokenizerAreTold) {
  tokenizer["model"]["strength"] = 2;
  EXPECT_EQ(notes(),
            std::vector<std::string>{in("/tokenizer.json: model.strength: 2 is not known here and is ignored")});
}
