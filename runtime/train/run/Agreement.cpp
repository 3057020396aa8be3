// Ends a run of several ranks unless all of them have the same executable, flags and data.
#include "train/run/Agreement.h"
#include "support/Checksum.h"
#include "support/Format.h"
#include "support/Json.h"
#include "support/MappedFile.h"
#include <nlohmann/json.hpp>
#include <set>

namespace xfc {

using Json = nlohmann::ordered_json;

// The kinds of facts that ranks compare.
static constexpr const char *flag = "flag --", *data = "data: ";

static std::string hexOf(uint64_t hash) { return format("%016llx", static_cast<unsigned long long>(hash)); }

void Agreement::onCall(const TrainOptions &options, const std::string &configuration) const {
  if (ranks.size() == 1)
    return;
  Json facts = Json::object();
  ranks.together([&] {
    facts["executable"] = checksumOf(MappedFile("/proc/self/exe").contents());
    facts[std::string(flag) + "resume"] = options.resume ? "true" : ""; // before the flags that it takes from the run
    // Ranks may read files at different paths, and may have different numbers of cores.
    const std::set<std::string> own = {
        "threads",      "source",       "target",    "tsv",          "data-weighting", "guided-alignment",
        "valid-source", "valid-target", "valid-tsv", "vocab",        "target-vocab",   "config",
        "data",         "init",         "teacher",   "teacher-model"};
    const Json flags = parseOrderedJson(configuration, "config.json");
    for (const auto &[name, value] : flags.items())
      if (!own.contains(name))
        facts[flag + name] = value.is_string() ? value.get<std::string>() : value.dump();
    if (!options.trace.file.empty()) // the traces are combined once all ranks have reached the same step
      facts[std::string(flag) + "trace-steps"] =
          std::to_string(options.trace.first) + ":" + std::to_string(options.trace.last);
  });
  compare(facts);
}

void Agreement::onData(const TranslationModel &model, const TrainingData &training, const HeldOut &heldOut) const {
  if (ranks.size() == 1)
    return;
  Json facts = Json::object();
  ranks.together([&] {
    const Device &device = model.engine->device();
    facts[device.traits().named] = device.name();
    auto fact = [&](const char *what, uint64_t hash) { facts[std::string(data) + what] = hexOf(hash); };
    fact("training text", training.corpus().totals().hash);
    fact("validation text", heldOut.any() ? heldOut.corpus().totals().hash : 0);
    fact("validation sources", heldOut.sumOfSources());
    fact("validation references", heldOut.sumOfReferences());
    fact("source vocabulary", crc32c(model.source->bytes()));
    fact("target vocabulary", crc32c(model.target->bytes()));
  });
  compare(facts);
}

void Agreement::onDraws(StepBatches &batches, Batches::Position position) const {
  const bool draws = ranks.size() > 1 && batches.areSampled();
  Json drawn = Json::object();
  ranks.together([&] {
    batches.seek(position);
    if (draws)
      drawn[std::string(data) + "segmentation of the training text"] = hexOf(batches.hashOfPool());
  });
  if (draws)
    compare(drawn);
}

void Agreement::compare(const Json &facts) const {
  const std::vector<std::string> all = ranks.gather(facts.dump());
  const Json first = parseOrderedJson(all[0], "the first rank");
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const Json theirs = parseOrderedJson(all[rank], "a rank");
    Json keys = first;
    keys.update(theirs);
    for (const auto &[key, unused] : keys.items()) {
      const std::string a = first.value(key, ""), b = theirs.value(key, "");
      if (a == b)
        continue;
      auto side = [&](int of, const std::string &value) {
        if (key.starts_with(flag))
          return ranks.nameOf(of) + " was given " + (value.empty() ? "no " : "") + key.substr(5) +
                 (value.empty() || value == "true" ? "" : " " + value);
        const std::string what = key.starts_with(data) ? key.substr(6) : key;
        return ranks.nameOf(of) + " has the " + what + " " + (value.empty() ? "unknown" : value);
      };
      throw CommonError(side(rank, b) + ", " + side(0, a) +
                        "; all processes of a run need the same executable, flags and data");
    }
  }
}

} // namespace xfc
