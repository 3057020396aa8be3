// Converts the tokenizer files of a Hugging Face folder to xfc vocabularies.
#include "vocabularies/FolderVocabularies.h"
#include "support/Files.h"
#include "support/Json.h"
#include "support/LineReader.h"
#include "tokenizers/JsonFields.h"
#include "tokenizers/MappedSentencePiece.h"
#include "tokenizers/Tokenizer.h"
#include <algorithm>
#include <map>

namespace xfc {
namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t mostTokens = 1 << 22;

// The languages of families whose files need not list them, in the order of their ids.
constexpr std::string_view m2mLanguages =
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi "
    "hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns "
    "oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh "
    "zu";
constexpr std::string_view mbartLanguages =
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP "
    "nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN";
constexpr std::string_view mbart50Languages = // after those of mBART
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE "
    "ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI";
constexpr std::string_view nllbLanguages =
    "ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi apc_Arab arb_Arab ars_Arab "
    "ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn bak_Cyrl bam_Latn ban_Latn bel_Cyrl "
    "bem_Latn ben_Beng bho_Deva bjn_Arab bjn_Latn bod_Tibt bos_Latn bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn "
    "cjk_Latn ckb_Arab crh_Latn cym_Latn dan_Latn deu_Latn dik_Latn dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn "
    "est_Latn eus_Latn ewe_Latn fao_Latn pes_Arab fij_Latn fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn "
    "gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn hun_Latn hye_Armn "
    "ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn jpn_Jpan kab_Latn kac_Latn kam_Latn kan_Knda kas_Arab "
    "kas_Deva kat_Geor knc_Arab knc_Latn kaz_Cyrl kbp_Latn kea_Latn khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn "
    "kon_Latn kor_Hang kmr_Latn lao_Laoo lvs_Latn lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn "
    "lua_Latn lug_Latn luo_Latn lus_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn mkd_Cyrl plt_Latn mlt_Latn "
    "mni_Beng khk_Cyrl mos_Latn mri_Latn zsm_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva nso_Latn nus_Latn "
    "nya_Latn oci_Latn gaz_Latn ory_Orya pag_Latn pan_Guru pap_Latn pol_Latn por_Latn prs_Arab pbt_Arab quy_Latn "
    "ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng scn_Latn shn_Mymr sin_Sinh slk_Latn slv_Latn smo_Latn "
    "sna_Latn snd_Arab som_Latn sot_Latn spa_Latn als_Latn srd_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn "
    "szl_Latn tam_Taml tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi taq_Latn taq_Tfng tpi_Latn tsn_Latn "
    "tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl umb_Latn urd_Arab uzn_Latn vec_Latn "
    "vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr yor_Latn yue_Hant zho_Hans zho_Hant zul_Latn";

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> words;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find(' ', begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
  }
  return words;
}

// Of tokenizer_config.json and special_tokens_map.json, what changes nothing here: tokens that no sentence to translate
// contains, other kinds of input, how texts are cut or padded (which translating does by itself), how transformers
// finds its classes and files, and the languages that --normalize-punctuation asks for elsewhere.
constexpr std::initializer_list<const char *> withoutEffect = {"sep_token",
                                                               "cls_token",
                                                               "mask_token",
                                                               "pad_token_type_id",
                                                               "unk_id",
                                                               "token_type_ids_pattern",
                                                               "model_input_names",
                                                               "chat_template",
                                                               "response_schema",
                                                               "model_max_length",
                                                               "max_length",
                                                               "max_target_length",
                                                               "max_len",
                                                               "stride",
                                                               "padding",
                                                               "padding_side",
                                                               "pad_to_multiple_of",
                                                               "truncation",
                                                               "truncation_side",
                                                               "truncation_strategy",
                                                               "num_madeup_words",
                                                               "legacy",
                                                               "errors",
                                                               "trim_offsets",
                                                               "verbose",
                                                               "use_fast",
                                                               "from_slow",
                                                               "backend",
                                                               "is_local",
                                                               "local_files_only",
                                                               "files_loaded",
                                                               "fast_tokenizer_files",
                                                               "name_or_path",
                                                               "special_tokens_map_file",
                                                               "tokenizer_file",
                                                               "vocab_file",
                                                               "merges_file",
                                                               "auto_map",
                                                               "processor_class",
                                                               "transformers_version",
                                                               "source_lang",
                                                               "target_lang"};

// Values without an effect, of settings whose other values have one that is lacking here.
const nlohmann::json &neutralSettings() {
  static const nlohmann::json settings = {{"clean_up_tokenization_spaces", false},
                                          {"do_lower_case", false},
                                          {"split_special_tokens", false},
                                          {"sp_model_kwargs", nlohmann::json::object()},
                                          {"language_codes", "m2m100"},
                                          {"add_bos_token", false},
                                          {"add_eos_token", true}};
  return settings;
}

class Folder {
public:
  Folder(const std::string &folder, const std::string &modelType) : folder(folder), modelType(modelType) {
    for (const char *file : {"special_tokens_map.json", "tokenizer_config.json"})
      if (has(file))
        within(file, [&] {
          const JsonFields fields = JsonFields::parsed(readFile(path(file), mostLargeBytes));
          readSettings(fields);
          tellIgnored(file, fields.unknown());
        });
    kind = kindOfTokenizer();
  }

  FolderVocabularies read(const std::string &sourceLanguage, const std::string &targetLanguage) {
    source = sourceLanguage.empty() ? settings["src_lang"] : sourceLanguage;
    target = targetLanguage.empty() ? settings["tgt_lang"] : targetLanguage;
    FolderVocabularies result = vocabularies();
    result.notes = std::move(notes);
    return result;
  }

private:
  std::string path(const std::string &file) const { return folder + "/" + file; }
  bool has(const std::string &file) const { return exists(path(file)); }

  FolderVocabularies vocabularies() {
    if (has("source.spm") && has("vocab.json"))
      return marian();
    if (has("tokenizer.json"))
      return inLanguages(readFile(path("tokenizer.json"), mostLargeBytes), "tokenizer.json");
    const std::string model = has("sentencepiece.bpe.model") ? "sentencepiece.bpe.model"
                              : has("spiece.model")          ? "spiece.model"
                                                             : "";
    if (!model.empty() && has("vocab.json"))
      return m2m(model);
    if (!model.empty())
      return modelType.ends_with("t5") ? t5(model) : fairseq(model);
    if (has("vocab.json") && has("merges.txt"))
      return {byteLevel(), ""};
    for (const char *other : {"vocab.txt", "merges.txt", "vocab.json", "source.spm", "target.spm", "tokenizer.model",
                              "spiece.vocab", "bpe.codes"})
      if (has(other))
        throw Error(
            path(other) +
            ": is not, or not all of, a tokenizer that is read here (tokenizer.json, vocab.json with merges.txt, "
            "SentencePiece models under the names of their families); add what is missing, or import a folder "
            "without this file: its model takes ids (--format ids), or a vocabulary given by --vocab");
    return {};
  }

  // The class of transformers that reads the folder: what tokenizer_config.json or else config.json names, or that of
  // the family.
  std::string kindOfTokenizer() const {
    std::string kind = named("tokenizer_class", "");
    if (kind.empty() && has("config.json"))
      within("config.json", [&] {
        const JsonFields config = JsonFields::parsed(readFile(path("config.json")));
        if (config.has("tokenizer_class"))
          kind = config.string("tokenizer_class");
      });
    if (kind.ends_with("Fast"))
      kind.resize(kind.size() - std::string("Fast").size());
    if (kind.empty() && modelType == "mbart")
      kind = "MBartTokenizer";
    if (kind.empty() && modelType == "m2m_100")
      kind = has("vocab.json") ? "M2M100Tokenizer" : "NllbTokenizer";
    return kind;
  }

  // Takes for languages that nothing names those which transformers takes. `knows` says whether the tokenizer has one.
  template <typename Knows> void completeLanguages(Knows knows) {
    static const std::map<std::string, std::string> languages = {{"MBartTokenizer", "en_XX"},
                                                                 {"MBart50Tokenizer", "en_XX"},
                                                                 {"M2M100Tokenizer", "en"},
                                                                 {"NllbTokenizer", "eng_Latn"}};
    const auto found = languages.find(kind);
    const std::string none = folder + ": no src_lang in a tokenizer_config.json, ",
                      name = "; name it by --source-language";
    if (source.empty() && found != languages.end() && knows(found->second)) {
      source = found->second;
      notes.push_back(none + "so source lines are in " + source + ", which " + kind + " takes then" + name);
    } else if (source.empty() && found != languages.end()) {
      notes.push_back(none + "and the tokenizer does not have " + found->second + ", which " + kind +
                      " takes then, so source lines are not marked with a language" + name);
    }
    if (target.empty())
      target = source;
  }

  // Prefixes errors with the file's name.
  template <typename Work> void within(const std::string &file, Work work) const {
    try {
      work();
    } catch (const Error &error) {
      const std::string what = error.what();
      throw Error(what.starts_with(folder) ? what : path(file) + ": " + what);
    }
  }

  void tellIgnored(const std::string &file, const std::vector<std::string> &members) {
    for (const std::string &member : members)
      notes.push_back(path(file) + ": " + member);
  }

  // A token is a string, or an object that also says how text is searched for it, as tokenizer.json does in its place.
  static std::string contentOf(const JsonFields &token) {
    if (token.isString())
      return token.string();
    token.ignore({"id", "lstrip", "rstrip", "normalized", "single_word", "special", "__type"});
    return token.string("content");
  }

  void readSettings(const JsonFields &file) {
    file.ignore(withoutEffect);
    file.ignoreIf(neutralSettings());
    for (const char *key :
         {"src_lang", "tgt_lang", "tokenizer_class", "unk_token", "eos_token", "pad_token", "bos_token"})
      if (file.has(key))
        settings[key] = contentOf(file.at(key));
    for (const char *key : {"legacy_behaviour", "separate_vocabs", "add_prefix_space"})
      flags[key] = flags[key] || file.boolean(key, false);
    if (file.has("extra_ids"))
      extraIds = file.at("extra_ids").integer(0, 10000);
    for (const char *key : {"additional_special_tokens", "extra_special_tokens"}) {
      if (!file.has(key))
        continue;
      moreSpecial.clear();
      const JsonFields tokens = file.at(key);
      const auto add = [&](const JsonFields &token) { moreSpecial.push_back(contentOf(token)); };
      if (tokens.isArray())
        tokens.each(add);
      else // under names by which transformers finds them
        tokens.members([&](const std::string &, const JsonFields &token) { add(token); });
    }
    if (file.has("added_tokens_decoder"))
      file.at("added_tokens_decoder").members([&](const std::string &key, const JsonFields &token) {
        const bool digits = !key.empty() && key.size() < 8 && key.find_first_not_of("0123456789") == std::string::npos;
        if (!digits || std::stoll(key) >= mostTokens)
          token.refuse("expected ids below " + std::to_string(mostTokens) + " for keys");
        added[std::stoll(key)] = {contentOf(token), token.boolean("special", false)};
      });
  }

  std::string named(const char *key, const char *otherwise) const {
    const auto found = settings.find(key);
    return found == settings.end() || found->second.empty() ? otherwise : found->second;
  }

  std::map<std::string, int64_t> idsOf(const std::string &file) const {
    std::map<std::string, int64_t> ids;
    within(file, [&] {
      JsonFields::parsed(readFile(path(file), mostLargeBytes))
          .members([&](const std::string &token, const JsonFields &id) { ids[token] = id.integer(0, mostTokens - 1); });
    });
    return ids;
  }

  // The special tokens that the folder's settings name are added by finish().
  MappedSentencePiece mapped(const std::string &model, const std::map<std::string, int64_t> &ids) const {
    MappedSentencePiece result;
    result.model = readFile(path(model), mostLargeBytes);
    for (const auto &[token, id] : ids)
      put(result, static_cast<size_t>(id), token);
    return result;
  }
  static void put(MappedSentencePiece &map, size_t id, const std::string &token) {
    if (id >= map.tokens.size())
      map.tokens.resize(id + 1);
    map.tokens[id] = token;
  }
  static void append(MappedSentencePiece &map, const std::string &token) {
    if (find(map, token) < 0)
      map.tokens.push_back(token);
  }
  static int32_t find(const MappedSentencePiece &map, const std::string &token) {
    const auto found = std::find(map.tokens.begin(), map.tokens.end(), token);
    return found == map.tokens.end() || token.empty() ? -1 : static_cast<int32_t>(found - map.tokens.begin());
  }
  void finish(MappedSentencePiece &map, const std::string &file) const {
    for (const auto &[id, token] : added)
      put(map, static_cast<size_t>(id), token.first);
    map.ids = {find(map, named("pad_token", "<pad>")), find(map, named("unk_token", "<unk>")),
               find(map, named("bos_token", "<s>")), find(map, named("eos_token", "</s>"))};
    if (map.ids.unk < 0 || map.ids.eos < 0)
      throw Error(path(file) + ": " + named("unk_token", "<unk>") + " and " + named("eos_token", "</s>") +
                  " must be among the tokens");
    auto special = [&](int32_t id) {
      if (id >= 0 && std::find(map.special.begin(), map.special.end(), id) == map.special.end())
        map.special.push_back(id);
    };
    for (const int32_t id : {map.ids.pad, map.ids.unk, map.ids.bos, map.ids.eos})
      special(id);
    for (const std::string &token : moreSpecial)
      special(find(map, token));
    for (const auto &[id, token] : added)
      if (token.second)
        special(static_cast<int32_t>(id));
    map.frame = {{}, {map.ids.eos}};
  }

  FolderVocabularies marian() {
    const bool separate = flags["separate_vocabs"];
    auto write = [&](const std::string &model, const std::string &ids) {
      MappedSentencePiece map = mapped(model, idsOf(ids));
      finish(map, ids);
      map.tags = !separate;
      return checked(map.written(), model);
    };
    FolderVocabularies result{write("source.spm", "vocab.json"), ""};
    if (has("target.spm"))
      result.target = write("target.spm", separate ? "target_vocab.json" : "vocab.json");
    if (result.target == result.source)
      result.target.clear();
    return result;
  }

  // If vocab.json has no languages, their tokens follow its own.
  FolderVocabularies m2m(const std::string &model) {
    const std::map<std::string, int64_t> ids = idsOf("vocab.json");
    MappedSentencePiece map = mapped(model, ids);
    const bool theirs = std::any_of(moreSpecial.begin(), moreSpecial.end(),
                                    [](const std::string &token) { return token.starts_with("__"); });
    if (!theirs)
      for (const std::string &language : words(m2mLanguages))
        moreSpecial.push_back("__" + language + "__");
    for (const std::string &token : moreSpecial)
      if (token.starts_with("__"))
        append(map, token);
    finish(map, "vocab.json");
    return inLanguages(map, model, "__");
  }

  // fairseq's ids, one more than SentencePiece's: <s>, <pad>, </s>, <unk>, pieces, languages, <mask>, other tokens.
  FolderVocabularies fairseq(const std::string &model) {
    MappedSentencePiece map;
    map.model = readFile(path(model), mostLargeBytes);
    map.tokens = {"<s>", "<pad>", "</s>", "<unk>"};
    const std::unique_ptr<Tokenizer> pieces = makeTokenizer(map.model, path(model));
    for (int32_t id = 3; id < pieces->size(); ++id)
      map.tokens.push_back(pieces->piece(id));
    // All models of mBART have its languages. Those of NLLB may have a list of their own.
    std::vector<std::string> more = moreSpecial;
    if (kind.starts_with("MBart"))
      more = words(mbartLanguages);
    else if (kind == "NllbTokenizer" && more.empty())
      more = words(nllbLanguages);
    if (kind == "MBart50Tokenizer")
      for (const std::string &language : words(mbart50Languages))
        more.push_back(language);
    more.emplace_back("<mask>");
    more.insert(more.end(), moreSpecial.begin(), moreSpecial.end());
    for (const std::string &token : more)
      append(map, token);
    moreSpecial = more;
    finish(map, model);
    return inLanguages(map, model, "");
  }

  // The token of a language is its name with `around` on both sides.
  FolderVocabularies inLanguages(MappedSentencePiece &map, const std::string &file, const std::string &around) {
    const auto idOf = [&](const std::string &language) { return find(map, around + language + around); };
    completeLanguages([&](const std::string &language) { return idOf(language) >= 0; });
    auto write = [&](const std::string &language) {
      if (!language.empty()) {
        const int32_t id = idOf(language);
        if (id < 0)
          throw Error(path(file) + ": the tokenizer has no language " + language +
                      "; give one of those of the model's description, or add additional_special_tokens to "
                      "tokenizer_config.json");
        map.frame = framed(id, map.ids.eos);
      }
      return checked(map.written(), file);
    };
    FolderVocabularies result{write(source), write(target)};
    if (result.target == result.source)
      result.target.clear();
    return result;
  }

  // T5's model, followed by the sentinel tokens, <extra_id_99> to <extra_id_0> unless the settings give another number.
  FolderVocabularies t5(const std::string &model) {
    MappedSentencePiece map;
    map.model = readFile(path(model), mostLargeBytes);
    const std::unique_ptr<Tokenizer> pieces = makeTokenizer(map.model, path(model));
    for (int32_t id = 0; id < pieces->size(); ++id)
      map.tokens.push_back(pieces->piece(id));
    for (int64_t i = extraIds - 1; i >= 0 && added.empty(); --i) {
      map.tokens.push_back("<extra_id_" + std::to_string(i) + ">");
      moreSpecial.push_back(map.tokens.back());
    }
    finish(map, model);
    return {checked(map.written(), model), ""};
  }

  // Places the language token: before the line, but after eos in the first models that had such tokens.
  Frame framed(int32_t language, int32_t eos) const {
    const bool behind = kind == "MBartTokenizer" ||
                        (kind == "NllbTokenizer" && flags.contains("legacy_behaviour") && flags.at("legacy_behaviour"));
    return behind ? Frame{{}, {eos, language}} : Frame{{language}, {eos}};
  }

  FolderVocabularies inLanguages(const std::string &contents, const std::string &file) {
    std::unique_ptr<Tokenizer> tokenizer = makeTokenizer(contents, path(file));
    tellIgnored(file, tokenizer->ignored());
    const auto knows = [&](const std::string &language) {
      const int32_t id = tokenizer->idOf(language);
      return id >= 0 && id != tokenizer->special().unk;
    };
    completeLanguages(knows);
    if (source.empty() && target.empty())
      return {contents, ""};
    // Sorted: an object that keeps the order of its keys compares a new key with all others, and a vocabulary has many.
    nlohmann::json json = parseJson(contents, path(file), mostLargeBytes);
    auto write = [&](const std::string &language) {
      const int32_t id = tokenizer->idOf(language), eos = tokenizer->special().eos;
      if (language.empty() || eos < 0)
        return contents;
      if (!knows(language))
        throw Error(path(file) + ": the tokenizer has no language " + language);
      nlohmann::json single = nlohmann::json::array(), special = nlohmann::json::object();
      auto add = [&](int32_t token) {
        const std::string name = tokenizer->piece(token);
        single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
        special[name] = {{"id", name}, {"ids", {token}}, {"tokens", {name}}};
      };
      const Frame frame = framed(id, eos);
      for (const int32_t token : frame.prefix)
        add(token);
      single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
      for (const int32_t token : frame.suffix)
        add(token);
      json["post_processor"] = {
          {"type", "TemplateProcessing"}, {"single", single}, {"pair", single}, {"special_tokens", special}};
      return json.dump();
    };
    FolderVocabularies result{write(source), write(target)};
    const auto prefixOf = [&](const std::string &vocabulary) {
      const std::unique_ptr<Tokenizer> read = makeTokenizer(vocabulary, path(file));
      return read->frame() ? read->frame()->prefix : std::vector<int32_t>();
    };
    if (prefixOf(result.source) == prefixOf(result.target)) // a target uses only the prefix of its frame
      result.target.clear();
    return result;
  }

  // Converts vocab.json and merges.txt, the files of GPT-2 and BART, to a tokenizer.json.
  std::string byteLevel() {
    const std::map<std::string, int64_t> ids = idsOf("vocab.json");
    Json merges = Json::array();
    LineReader lines(path("merges.txt"));
    for (std::string line; lines.next(line);)
      if (!line.empty() && !(lines.number() == 1 && line.starts_with("#version")))
        merges.push_back(line);
    if (lines.number() == 0)
      throw Error(path("merges.txt") + ": is empty; expected the pairs of tokens that are merged, one per line");
    Json tokens = Json::array();
    const std::string bos = named("bos_token", "<s>"), eos = named("eos_token", "</s>");
    for (const std::string &token :
         {bos, named("pad_token", "<pad>"), eos, named("unk_token", "<unk>"), std::string("<mask>")})
      if (const auto found = ids.find(token); found != ids.end())
        tokens.push_back({{"id", found->second},
                          {"content", token},
                          {"single_word", false},
                          {"lstrip", false},
                          {"rstrip", false},
                          {"normalized", false},
                          {"special", true}});
    Json json = {{"added_tokens", tokens},
                 {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", flags["add_prefix_space"]}}},
                 {"decoder", {{"type", "ByteLevel"}}},
                 {"model", {{"type", "BPE"}, {"vocab", ids}, {"merges", merges}}}};
    if (ids.contains(bos) && ids.contains(eos))
      json["post_processor"] = {
          {"type", "RobertaProcessing"}, {"sep", {eos, ids.at(eos)}}, {"cls", {bos, ids.at(bos)}}};
    return checked(json.dump(), "merges.txt");
  }

  // Throws Error unless the vocabulary that is to be written can be read.
  std::string checked(std::string contents, const std::string &file) const {
    makeTokenizer(contents, path(file));
    return contents;
  }

  std::string folder, modelType, kind;
  std::string source, target; // languages
  std::vector<std::string> notes;
  std::map<std::string, std::string> settings;
  std::map<std::string, bool> flags;
  int64_t extraIds = 100;
  std::vector<std::string> moreSpecial;
  std::map<int64_t, std::pair<std::string, bool>> added; // text, and whether it is special
};

} // namespace

FolderVocabularies vocabulariesOfFolder(const std::string &folder, const std::string &modelType,
                                        const std::string &sourceLanguage, const std::string &targetLanguage) {
  return Folder(folder, modelType).read(sourceLanguage, targetLanguage);
}

} // namespace xfc
