// Converts a model's search settings: generation_config.json to the `generation` of model.json, and back.
#include "Generation.h"
#include "plan/GenerationSettings.h"
#include <algorithm>

namespace xfc {
namespace {

using Json = nlohmann::ordered_json;

// Adds what is never written. Our search writes neither pad nor start in any case, so these are left out; returns
// whether pad was among the rest.
bool addLists(const Config &config, const Json &tokens, int64_t vocabulary, Json &json) {
  Json suppress = Json::array(), sequences = Json::array();
  const int64_t eos = tokens["eos"];
  bool suppressesPad = false;
  const auto addOne = [&](const JsonValue &value) {
    const int64_t id = value.integer(0, vocabulary - 1);
    if (id == eos)
      value.fail("is eos, without which no translation ends; expected other tokens");
    suppressesPad |= id == tokens["pad"];
    if (id != tokens["pad"] && id != tokens["start"])
      suppress.push_back(id);
  };
  if (config.has("suppress_tokens"))
    for (const JsonValue &value : config.at("suppress_tokens", "").elements())
      addOne(value);
  if (config.has("bad_words_ids"))
    for (const JsonValue &list : config.at("bad_words_ids", "").elements()) {
      const std::vector<JsonValue> ids = list.elements();
      if (ids.size() == 1) {
        // transformers ignores an entry that is only eos.
        if (ids.front().integer(0, vocabulary - 1) != eos)
          addOne(ids.front());
        continue;
      }
      Json sequence = Json::array();
      for (const JsonValue &id : ids)
        sequence.push_back(id.integer(0, vocabulary - 1));
      if (!sequence.empty())
        sequences.push_back(sequence);
    }
  if (!suppress.empty())
    json["suppress"] = suppress;
  if (!sequences.empty())
    json["bad_sequences"] = sequences;
  return suppressesPad;
}

// The constraints of force_words_ids, which has a phrase or a list of phrases for each.
Json requiredPhrases(const Config &config, const Json &tokens, int64_t vocabulary) {
  Json constraints = Json::array();
  const auto phraseOf = [&](const std::vector<JsonValue> &ids) {
    Json phrase = Json::array();
    for (const JsonValue &value : ids) {
      const int64_t id = value.integer(0, vocabulary - 1);
      for (const char *special : {"pad", "start", "eos"})
        if (id == tokens[special])
          value.fail(std::string("is ") + special + ", which no translation contains; expected other tokens");
      phrase.push_back(id);
    }
    return phrase;
  };
  for (const JsonValue &value : config.at("force_words_ids", "").elements()) {
    const std::vector<JsonValue> elements = value.elements();
    if (elements.empty())
      value.fail("is empty; expected token ids, or lists of them");
    Json &constraint = constraints.emplace_back(Json::array());
    if (!elements.front().value().is_array()) {
      constraint.push_back(phraseOf(elements));
      continue;
    }
    for (const JsonValue &phrase : elements) {
      if (phrase.elements().empty())
        phrase.fail("is empty; expected token ids");
      constraint.push_back(phraseOf(phrase.elements()));
    }
  }
  return constraints;
}

} // namespace

const std::set<std::string> &harmlessInSearch() {
  static const std::set<std::string> keys = {
      // of sampling, which do_sample turns on, and which is not here
      "top_h", "eta_cutoff",
      // of speed and memory
      "use_cache", "cache_implementation", "cache_config", "return_legacy_cache", "low_memory", "disable_compile",
      "compile_config", "prefill_chunk_size", "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule",
      "assistant_confidence_threshold", "assistant_early_exit", "assistant_lookbehind", "target_lookbehind",
      "prompt_lookup_num_tokens", "max_matching_ngram_size", "continuous_batching_config",
      // of what is returned beside the translation
      "output_attentions", "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate",
      "num_return_sequences",
      // of broken weights, of the files, and of tokens that config.json has
      "remove_invalid_values", "_from_model_config", "transformers_version", "pad_token_id", "bos_token_id"};
  return keys;
}

const nlohmann::json &neutralInSearch() {
  // Any other key has an effect by every value but null.
  static const nlohmann::json values = {{"encoder_repetition_penalty", 1.0},
                                        {"encoder_no_repeat_ngram_size", 0},
                                        {"do_sample", false},
                                        {"begin_suppress_tokens", nullptr},
                                        {"sequence_bias", nullptr},
                                        {"forced_decoder_ids", nullptr},
                                        {"exponential_decay_length_penalty", nullptr},
                                        {"guidance_scale", 1.0},
                                        {"penalty_alpha", 0.0},
                                        {"token_healing", false},
                                        {"max_time", nullptr},
                                        {"stop_strings", nullptr},
                                        {"constraints", nullptr},
                                        {"dola_layers", nullptr},
                                        {"watermarking_config", nullptr}};
  return values;
}

Json generationOf(const Config &config, const Json &description, std::vector<std::string> &notes) {
  Json json;
  const Json &tokens = description["tokens"];
  const int64_t eos = tokens["eos"], vocabulary = description["params"]["target_vocab"];
  json["beam"] = config.integer("num_beams", 1, mostHypotheses, 1);
  const double diversity = config.number("diversity_penalty", 0, mostDiversity, false, 0);
  if (const int64_t groups = config.integer("num_beam_groups", 1, mostHypotheses, 1); groups > 1) {
    if (json["beam"].get<int64_t>() % groups != 0)
      config.fail("num_beam_groups", std::to_string(groups) + " does not divide num_beams, " + json["beam"].dump());
    if (diversity == 0)
      config.fail("diversity_penalty", "0 lets all num_beam_groups write the same; expected a number above 0");
    json["beam_groups"] = groups;
    json["diversity"] = diversity;
  } else if (diversity > 0) {
    notes.push_back(config.file() +
                    ": diversity_penalty: is of num_beam_groups, which are not given, so it is ignored");
  }
  json["length_penalty"] = config.number("length_penalty", -mostLengthPenalty, mostLengthPenalty, false, 1);
  json["length_penalty_form"] = "power";
  json["early_stopping"] = false;
  if (config.has("early_stopping")) {
    const JsonValue value = config.at("early_stopping", "");
    if (value.isBoolean())
      json["early_stopping"] = value.boolean();
    else
      json["early_stopping"] = value.oneOf({"never"}, "rule");
  }
  const int64_t forced = config.token("forced_eos_token_id", -1, vocabulary);
  if (forced >= 0 && forced != eos)
    config.fail("forced_eos_token_id",
                std::to_string(forced) + " is not eos, which is " + std::to_string(eos) + "; expected eos, or null");
  // Lengths there include the start token, and eos if that is forced.
  const int64_t counted = forced >= 0 ? 2 : 1;
  if (config.has("max_new_tokens"))
    json["max_length"] = config.integer("max_new_tokens", counted, mostTokens, 0) + 1 - counted;
  else if (config.has("max_length"))
    json["max_length"] = config.integer("max_length", counted + 1, mostTokens, 0) - counted;
  json["at_max_length"] = forced >= 0 ? "forced_eos" : "cut";
  // The minimum counts the same tokens, but for eos, before which there must be that many, unless eos is forced.
  const char *const minimum = config.has("min_new_tokens") ? "min_new_tokens" : "min_length", *const maximum =
                                                                                                  config.has(
                                                                                                      "max_new_tokens")
                                                                                                      ? "max_new_tokens"
                                                                                                      : "max_length";
  const bool withStart = minimum == std::string("min_length");
  int64_t least = config.integer(minimum, 0, mostTokens, 0);
  least = std::max<int64_t>(least - withStart, 0);
  if (json.contains("max_length")) {
    const int64_t most = json["max_length"];
    if (least > most + counted - 1)
      config.fail(minimum, config.at(minimum, "").shown() + ": more than " + maximum + ", " +
                               config.at(maximum, "").shown() + ", leaves room for; expected less");
    least = std::min(least, most);
  }
  if (least > 0)
    json["min_length"] = least;
  if (const int64_t first = config.token("forced_bos_token_id", -1, vocabulary); first >= 0)
    json["forced_first"] = {first};
  if (!addLists(config, tokens, vocabulary, json))
    notes.push_back(config.file() + ": neither suppress_tokens nor bad_words_ids names pad, " + tokens["pad"].dump() +
                    ", so `generate` may write it within a translation; the search here never does");
  if (config.has("force_words_ids"))
    if (Json constraints = requiredPhrases(config, tokens, vocabulary); !constraints.empty()) {
      json["required_phrases"] = std::move(constraints);
      notes.push_back(config.file() +
                      ": force_words_ids: the beam is shared otherwise here than in `generate`: all translations "
                      "contain the phrases, but may be others");
    }
  if (const int64_t n = config.integer("no_repeat_ngram_size", 0, mostTokens, 0); n > 0)
    json["no_repeat_ngram"] = n;
  if (const double penalty = config.number("repetition_penalty", 0, mostRepetitionPenalty, false, 1); penalty != 1) {
    json["repetition_penalty"] = penalty;
    if (json["beam"] == 1)
      notes.push_back(config.file() +
                      ": repetition_penalty: `generate` applies it to logits in a greedy search, and the "
                      "search here to log-probabilities, as it does in beam search");
  }
  for (const GenerationSetting &setting : generationSettings()) {
    const char *key = setting.elsewhere.huggingFace;
    if (setting.subject != GenerationSetting::Subject::Sampling || !key || !config.has(key))
      continue;
    Generation read;
    if (const auto problem = readSetting(setting, config.at(key, "").value(), read))
      notes.push_back(config.file() + ": " + key + ": " + problem->what + ", so it is ignored");
    else if (read != Generation())
      json[setting.name] = valueOf(setting, read);
  }
  if (config.boolean("renormalize_logits", false))
    json["renormalize"] = true;
  return json;
}

Json generationConfig(const Generation &generation, const Description &model, std::vector<std::string> &notes) {
  using enum Generation::EarlyStopping;
  const TokenIds &tokens = model.tokens;
  const bool forced = generation.atMaxLength != Generation::AtMaxLength::Cut;
  const int64_t counted = forced ? 2 : 1; // as in generationOf()
  const int64_t longest = model.maxTargetLength ? model.maxTargetLength : 512;
  Json json = {{"pad_token_id", tokens.pad},
               {"bos_token_id", tokens.bos},
               {"eos_token_id", tokens.eos},
               {"decoder_start_token_id", tokens.start},
               {"num_beams", generation.beam},
               {"length_penalty", generation.lengthPenalty},
               {"max_length", generation.maxLength ? generation.maxLength + counted : longest}};
  if (generation.earlyStopping == Never)
    json["early_stopping"] = "never";
  else
    json["early_stopping"] = generation.earlyStopping == Yes;
  if (forced)
    json["forced_eos_token_id"] = tokens.eos;
  if (generation.minLength)
    json["min_length"] = generation.minLength + 1;
  if (generation.forcedFirst.size() == 1)
    json["forced_bos_token_id"] = generation.forcedFirst.front();
  else if (!generation.forcedFirst.empty())
    notes.push_back("generation.forced_first: `generate` forces only one token, but translations begin with " +
                    std::to_string(generation.forcedFirst.size()) + "; pass them as decoder_input_ids");
  // Our search never generates these two tokens.
  std::vector<int32_t> suppress = {tokens.pad};
  if (tokens.start != tokens.pad && tokens.start != tokens.eos)
    suppress.push_back(tokens.start);
  suppress.insert(suppress.end(), generation.suppress.begin(), generation.suppress.end());
  json["suppress_tokens"] = suppress;
  if (!generation.badSequences.empty())
    json["bad_words_ids"] = generation.badSequences;
  for (const Constraint &constraint : generation.requiredPhrases) // a phrase by itself, or a list of several
    if (constraint.size() == 1)
      json["force_words_ids"].push_back(constraint.front());
    else
      json["force_words_ids"].push_back(constraint);
  if (!generation.requiredPhrases.empty())
    notes.push_back("generation.required_phrases: `generate` meets constraints with num_beams of 2 or more, up to "
                    "version 4 of transformers, and later as "
                    "custom_generate=\"transformers-community/constrained-beam-search\"");
  if (generation.noRepeatNgram)
    json["no_repeat_ngram_size"] = generation.noRepeatNgram;
  if (generation.repetitionPenalty != 1)
    json["repetition_penalty"] = generation.repetitionPenalty;
  if (generation.renormalize)
    json["renormalize_logits"] = true;
  if (generation.beamGroups > 1) {
    json["num_beam_groups"] = generation.beamGroups;
    json["diversity_penalty"] = generation.diversity;
    notes.push_back(
        "generation.beam_groups: `generate` has diverse beam search up to version 4 of transformers, and later "
        "as custom_generate=\"transformers-community/group-beam-search\"");
  }
  for (const GenerationSetting &setting : generationSettings())
    if (setting.subject == GenerationSetting::Subject::Sampling && setting.elsewhere.huggingFace &&
        !isUsual(setting, generation))
      json[setting.elsewhere.huggingFace] = valueOf(setting, generation);
  for (const char *name : {"patience", "coverage_penalty", "max_length_ratio", "min_length_ratio"})
    if (const GenerationSetting &setting = *findSetting(name); !isUsual(setting, generation))
      notes.push_back(std::string("generation.") + name + ": " + valueOf(setting, generation).dump() +
                      ", which `generate` does not know");
  if (generation.beam > 1 && generation.penaltyForm == Generation::PenaltyForm::Offset)
    notes.push_back("generation.length_penalty_form: \"offset\", which `generate` does not know: it divides by n^A, so "
                    "beam search may choose other translations there");
  return json;
}

} // namespace xfc
