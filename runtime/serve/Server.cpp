// Serves translations over HTTP.
#include "serve/Server.h"
#include "serve/Executor.h"
#include "serve/Metrics.h"
#include "serve/Page.h"
#include "serve/Requests.h"
#include "support/Confinement.h"
#include "support/Files.h"
#include "support/LineReader.h"
#include "support/Quoted.h"
#include "support/Signals.h"
#include "tokenizers/Sentences.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

namespace xfc {

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// The pairs of tokens whose attention all answers together may hold that are not read yet: four answers of the largest
// size. A number takes 8 bytes, and about 20 as text.
constexpr int64_t mostHeldPairs = int64_t(1) << 22;

constexpr const char *jsonType = "application/json";

std::string dumped(const Json &json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void log(const std::string &line) { std::fprintf(stderr, "serve: %s\n", oneLine(line).c_str()); }

// A model, and who works with it now.
struct Served {
  std::optional<Direction> direction; // nothing: any
  ModelOptions options;
  std::shared_ptr<Executor> executor;
  std::shared_ptr<Executor> loading; // takes the executor's place once it has loaded
  bool again = false;                // another reload was asked for meanwhile
  ExecutorCounts counts;

  std::string name() const { return direction ? direction->source + "-" + direction->target : "any"; }
};

// Whether two keys are equal, in a time that does not tell where they differ.
bool equalKeys(std::string_view a, std::string_view b) {
  unsigned different = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i)
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[b.empty() ? 0 : i % b.size()]);
  return different == 0;
}

class Server {
public:
  explicit Server(const ServeOptions &options)
      : options(options),
        http(options.http, [this](const std::shared_ptr<HttpExchange> &exchange) { handle(exchange); }) {
    if (!options.apiKeys.empty())
      for (std::string key : readLines(options.apiKeys))
        if (!key.empty())
          keys.push_back(std::move(key));
    if (!options.apiKeys.empty() && keys.empty())
      throw Error(options.apiKeys + ": holds no API key; expected one on each line");
    addModels();
  }

  void run() {
    const int port = http.open(options.host, options.port);
    const InterruptGuard guard(http.wake());
    confineServing(options.model.device.device);
    http.onWaking([this] { heedSignals(); });
    for (const auto &served : models)
      load(*served);
    listening = "listening on http://" +
                (options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]") + ":" +
                std::to_string(port);
    http.run();
    if (!failure.empty())
      throw Error(failure);
    log("stopped");
  }

private:
  void addModels() {
    std::vector<std::string> given = options.models;
    if (given.empty())
      given.emplace_back(); // the packed one
    const std::vector<std::string> &libraries = options.model.ensembleLibraries;
    size_t others = 0; // that are not the first of their direction
    for (const std::string &entry : given) {
      auto served = std::make_unique<Served>();
      served->options = options.model;
      served->options.ensembleLibraries.clear();
      std::string path = entry;
      if (const size_t equals = entry.find('='); equals != std::string::npos && !exists(entry)) {
        served->direction = directionOf(entry.substr(0, equals));
        path = entry.substr(equals + 1);
      } else if (!options.direction.empty()) {
        served->direction = directionOf(options.direction);
      }
      if (!models.empty() && (!served->direction || !models.front()->direction))
        throw Error("--model: several models need a direction each, such as en-fr=DIR; those of the same direction "
                    "decode together, as an ensemble");
      const auto same =
          std::ranges::find_if(models, [&](const auto &other) { return other->direction == served->direction; });
      if (same != models.end()) {
        ModelOptions &first = (*same)->options;
        first.others.push_back(std::move(path));
        if (others < libraries.size())
          first.ensembleLibraries.push_back(libraries[others]);
        ++others;
        continue;
      }
      served->options.takePath(path);
      models.push_back(std::move(served));
    }
    options.model.checkLibraries(others);
    for (const auto &[flag, other] : {std::pair{"--draft", options.model.draft}, {"--rescore", options.model.rescorer}})
      if (!other.empty() && models.size() > 1)
        throw Error(std::string(flag) +
                    " is for one model, but --model gives several directions; start a server for each of them");
  }

  //===------------------------------------------------------------------------------------------------------===//
  // Loading, and signals
  //===------------------------------------------------------------------------------------------------------===//

  // Loads the model into an executor of its own, beside the one that works.
  void load(Served &served) {
    if (served.loading) {
      served.again = true;
      return;
    }
    served.loading = std::make_shared<Executor>(served.options, options.search, options.documentTokens, served.counts,
                                                [this, &served](const std::string &problem) {
                                                  http.post([this, &served, problem] { loaded(served, problem); });
                                                });
  }

  void loaded(Served &served, const std::string &problem) {
    std::shared_ptr<Executor> made = std::move(served.loading);
    served.loading = nullptr;
    if (problem.empty()) {
      if (served.executor)
        log("loaded " + served.name() + " again");
      served.executor = std::move(made); // the one before ends with its last request
    } else if (!served.executor) {
      failure = problem;
      http.finish();
      return;
    } else {
      log(served.name() + " was not loaded again, and goes on as it was: " + problem);
    }
    if (std::exchange(served.again, false))
      load(served);
    if (!listening.empty() &&
        std::ranges::all_of(models, [](const auto &model) { return model->executor != nullptr; })) {
      http.accept();
      log(std::exchange(listening, ""));
    }
  }

  void heedSignals() {
    if (interrupted() && !ending) {
      ending = true;
      log("ending: answers what was asked");
      http.finish();
    }
    if (reloadRequested() && !ending)
      for (const auto &served : models)
        load(*served);
  }

  //===------------------------------------------------------------------------------------------------------===//
  // Answers
  //===------------------------------------------------------------------------------------------------------===//

  // A request that is being translated.
  struct Work {
    std::shared_ptr<HttpExchange> exchange;
    std::string path;
    Clock::time_point begin = Clock::now();
    TranslationRequest request;
    std::vector<Document> documents; // of texts that are translated sentence by sentence
    std::shared_ptr<Executor> executor;
    std::shared_ptr<TranslationJob> job;
    std::vector<TranslatedLine> lines;
    std::vector<bool> translated;
    bool begun = false; // of a streamed answer
  };

  HttpHeaders headers() const {
    HttpHeaders all = {{"Access-Control-Allow-Origin", "*"},
                       {"Access-Control-Allow-Headers", "Authorization, Content-Type"},
                       {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"}};
    if (ending)
      all.emplace_back("Connection", "close");
    return all;
  }

  void answer(const std::shared_ptr<HttpExchange> &exchange, const std::string &path, Clock::time_point begin,
              int status, const std::string &type, std::string_view body, HttpHeaders more = {}) {
    metrics.count(path, status, std::chrono::duration<double>(Clock::now() - begin).count());
    for (auto &header : headers())
      more.push_back(std::move(header));
    exchange->reply(status, type, body, more);
  }

  void refuse(const std::shared_ptr<HttpExchange> &exchange, const std::string &path, Clock::time_point begin,
              int status, const std::string &what) {
    HttpHeaders more;
    if (status == 429 || status == 503)
      more.emplace_back("Retry-After", "1");
    answer(exchange, path, begin, status, jsonType, dumped({{"error", what}}) + "\n", std::move(more));
  }

  void handle(const std::shared_ptr<HttpExchange> &exchange) {
    const Clock::time_point begin = Clock::now();
    struct Route {
      const char *path;
      bool posts;
      void (Server::*answer)(const std::shared_ptr<HttpExchange> &, const std::string &, Clock::time_point);
    };
    static constexpr Route routes[] = {{"/translate", true, &Server::translate},
                                       {"/v1/translate", true, &Server::translate},
                                       {"/languages", false, &Server::languages},
                                       {"/health", false, &Server::health},
                                       {"/frontend/settings", false, &Server::settings},
                                       {"/metrics", false, &Server::showMetrics},
                                       {"/", false, &Server::page}};
    const std::string path = exchange->path();
    const auto route = std::ranges::find_if(routes, [&](const Route &known) { return path == known.path; });
    const HttpMethod method = exchange->method();
    if (route == std::end(routes))
      refuse(exchange, "other", begin, 404,
             "there is nothing at " + inQuotes(path) + "; POST to /translate or /v1/translate");
    else if (method == HttpMethod::Options)
      answer(exchange, path, begin, 204, "text/plain", "");
    else if (route->posts ? method != HttpMethod::Post : method != HttpMethod::Get && method != HttpMethod::Head)
      refuse(exchange, path, begin, 405, path + (route->posts ? " expects POST" : " expects GET"));
    else
      (this->*route->answer)(exchange, path, begin);
  }

  void page(const std::shared_ptr<HttpExchange> &exchange, const std::string &path, Clock::time_point begin) {
    answer(exchange, path, begin, 200, "text/html; charset=utf-8", tryingPage);
  }

  void health(const std::shared_ptr<HttpExchange> &exchange, const std::string &path, Clock::time_point begin) {
    if (ending)
      refuse(exchange, path, begin, 503, "the server is ending");
    else
      answer(exchange, path, begin, 200, jsonType, "{\"status\":\"ok\"}\n");
  }

  void languages(const std::shared_ptr<HttpExchange> &exchange, const std::string &path, Clock::time_point begin) {
    Json list = Json::array();
    for (const auto &served : models) {
      if (!served->direction)
        continue;
      const auto &[source, target] = *served->direction;
      const auto known = std::ranges::find_if(list, [&](const Json &language) { return language["code"] == source; });
      if (known != list.end())
        (*known)["targets"].push_back(target);
      else
        list.push_back({{"code", source}, {"name", languageName(source)}, {"targets", Json::array({target})}});
    }
    answer(exchange, path, begin, 200, jsonType, dumped(list) + "\n");
  }

  void settings(const std::shared_ptr<HttpExchange> &exchange, const std::string &path, Clock::time_point begin) {
    const auto language = [](const std::string &code) { return Json{{"code", code}, {"name", languageName(code)}}; };
    const std::optional<Direction> &first = models.front()->direction;
    answer(
        exchange, path, begin, 200, jsonType,
        dumped({{"apiKeys", !keys.empty()},
                {"charLimit", options.http.bodyBytes},
                {"filesTranslation", false},
                {"frontendTimeout", 500},
                {"keyRequired", !keys.empty()},
                {"language",
                 {{"source", language(first ? first->source : "")}, {"target", language(first ? first->target : "")}}},
                {"suggestions", false},
                {"supportedFilesFormat", Json::array()}}) +
            "\n");
  }

  void showMetrics(const std::shared_ptr<HttpExchange> &exchange, const std::string &path, Clock::time_point begin) {
    std::string text = metrics.text();
    const auto add = [&](const char *name, const char *type, const char *help, const auto &valueOf) {
      for (const auto &served : models)
        Metrics::add(text, name, type, help, "model=\"" + served->name() + "\"", static_cast<double>(valueOf(*served)));
    };
    add("xfc_sentences_total", "counter", "lines translated",
        [](const Served &s) { return s.counts.sentences.load(); });
    add("xfc_source_tokens_total", "counter", "tokens read",
        [](const Served &s) { return s.counts.sourceTokens.load(); });
    add("xfc_target_tokens_total", "counter", "tokens of the best translations",
        [](const Served &s) { return s.counts.targetTokens.load(); });
    add("xfc_steps_total", "counter", "decoding steps", [](const Served &s) { return s.counts.steps.load(); });
    add("xfc_step_hypotheses_total", "counter", "hypotheses extended by decoding steps",
        [](const Served &s) { return s.counts.stepHypotheses.load(); });
    add("xfc_step_capacity", "gauge", "hypotheses for which a step has room",
        [](const Served &s) { return s.executor->capacity(); });
    add("xfc_waiting_sentences", "gauge", "lines that wait for room",
        [](const Served &s) { return s.counts.waiting.load(); });
    add("xfc_running_sentences", "gauge", "lines that are being translated",
        [](const Served &s) { return s.counts.running.load(); });
    Metrics::add(text, "xfc_queued_lines", "gauge", "lines accepted and not answered", "", static_cast<double>(queued));
    answer(exchange, path, begin, 200, "text/plain; version=0.0.4", text);
  }

  //===------------------------------------------------------------------------------------------------------===//
  // Translations
  //===------------------------------------------------------------------------------------------------------===//

  void translate(const std::shared_ptr<HttpExchange> &exchange, const std::string &path, Clock::time_point begin) {
    auto work = std::make_shared<Work>();
    work->exchange = exchange;
    work->path = path;
    work->begin = begin;
    try {
      read(*work);
    } catch (const RefusedRequest &refused) {
      refuse(exchange, path, begin, refused.status, refused.what());
      return;
    } catch (const std::exception &error) {
      refuse(exchange, path, begin, 500, error.what());
      return;
    }
    TranslationJob &job = *work->job;
    job.held = std::make_shared<HeldAlignments>(alignmentRoom);
    exchange->keep(job.held);
    queued += job.lines.size();
    works[work.get()] = work;
    job.tell = [this, weak = std::weak_ptr(work)](TranslationUpdate update) {
      http.post([this, weak, update = std::move(update)]() mutable {
        if (const std::shared_ptr<Work> work = weak.lock(); work && !work->exchange->answered())
          heed(*work, std::move(update));
      });
    };
    exchange->onLeaving([this, weak = std::weak_ptr(work)] {
      if (const std::shared_ptr<Work> work = weak.lock()) {
        metrics.count(work->path, 499, std::chrono::duration<double>(Clock::now() - work->begin).count());
        work->executor->cancel(work->job);
        forget(*work);
      }
    });
    exchange->onTimeout(options.timeout, [this, weak = std::weak_ptr(work)] {
      if (const std::shared_ptr<Work> work = weak.lock())
        fail(*work, 503, "the translation takes longer than the " + Json(options.timeout).dump() + " s that it may");
    });
    work->executor->submit(work->job);
  }

  // Throws RefusedRequest.
  void read(Work &work) const {
    const std::string type = work.exchange->header("Content-Type");
    const bool ours = work.path != "/translate";
    work.request = ours ? readTranslate(type, work.exchange->body())
                        : readLibreTranslate(type, work.exchange->body(), options.mostAlternatives);
    const TranslationRequest &request = work.request;
    checkKey(work);
    if (ending)
      throw RefusedRequest(503, "the server is ending");
    work.executor = executorFor(request, ours);
    work.job = std::make_shared<TranslationJob>();
    if (ours)
      work.job->options = request.options;
    else
      work.job->options = {"--token-scores=false", "--alignments=none"}; // which the answer has no place for
    const auto checkCount = [&](size_t lines) {
      if (static_cast<int64_t>(lines) > options.mostWaiting)
        throw RefusedRequest(413, "the request has " + std::to_string(lines) +
                                      (request.document ? " sentences" : " lines") + ", more than the " +
                                      std::to_string(options.mostWaiting) + " that may wait; send fewer at a time");
    };
    work.job->lines = request.texts;
    if (request.document) {
      work.documents = request.documents();
      size_t sentences = 0;
      for (Document &document : work.documents) {
        document.split(sentencesOf);
        checkCount(sentences += document.lines().size()); // before any of them is tokenized
      }
      work.job->lines.clear();
      for (Document &document : work.documents) {
        document.split([&](std::string_view sentence) { return work.executor->parts(sentence); });
        work.job->lines.insert(work.job->lines.end(), document.lines().begin(), document.lines().end());
        work.job->documents.push_back(document.lines().size());
      }
    }
    const size_t lines = work.job->lines.size();
    checkCount(lines);
    if (static_cast<int64_t>(queued + lines) > options.mostWaiting)
      throw RefusedRequest(429, "too many lines wait already; come again later");
    work.job->prefixes = request.prefixes;
    work.job->constraints = request.constraints;
    work.job->alternatives = request.alternatives;
    work.job->stream = request.stream;
    work.lines.resize(lines);
  }

  void checkKey(const Work &work) const {
    if (keys.empty())
      return;
    std::string key = work.request.apiKey;
    if (const std::string bearer = work.exchange->header("Authorization"); bearer.starts_with("Bearer "))
      key = bearer.substr(7);
    if (key.empty())
      throw RefusedRequest(403, "this server needs an API key: give api_key, or the header Authorization: Bearer KEY");
    bool known = false;
    for (const std::string &one : keys)
      known |= equalKeys(key, one);
    if (!known)
      throw RefusedRequest(403, "Invalid API key");
  }

  std::shared_ptr<Executor> executorFor(const TranslationRequest &request, bool optional) const {
    if (request.source == "auto")
      throw RefusedRequest(400, "source: auto is not supported, since this server does not detect languages; name one");
    if (!models.front()->direction ||
        (optional && models.size() == 1 && request.source.empty() && request.target.empty()))
      return models.front()->executor;
    const auto knows = [&](const std::string &code, bool asSource) {
      return std::ranges::any_of(models, [&](const auto &served) {
        return code == (asSource ? served->direction->source : served->direction->target);
      });
    };
    for (const auto &served : models)
      if (*served->direction == Direction{request.source, request.target})
        return served->executor;
    for (const auto &[code, asSource] : {std::pair(request.source, true), {request.target, false}})
      if (code.empty())
        throw RefusedRequest(400,
                             "Invalid request: missing " + std::string(asSource ? "source" : "target") + " parameter");
      else if (!knows(code, asSource))
        throw RefusedRequest(400, oneLine(code) + " is not supported as " + (asSource ? "source" : "target") +
                                      "; GET /languages lists what is");
    throw RefusedRequest(400,
                         request.source + " to " + request.target + " is not supported; GET /languages lists what is");
  }

  // What the executor tells.
  void heed(Work &work, TranslationUpdate update) {
    switch (update.kind) {
    case TranslationUpdate::Kind::Tokens:
      stream(work, {{"index", update.line}, {"text", update.text}, {"ids", update.ids}});
      break;
    case TranslationUpdate::Kind::Line:
      if (work.request.stream) {
        Json line = {{"index", update.line}};
        line.update(jsonOf(update.found));
        stream(work, line);
      } else {
        work.lines[update.line] = std::move(update.found);
      }
      break;
    case TranslationUpdate::Kind::Refused:
      fail(work, 400, inTermsOfRequests(update.text));
      break;
    case TranslationUpdate::Kind::Busy:
      fail(work, 503, update.text);
      break;
    case TranslationUpdate::Kind::Failed:
      fail(work, 500, inTermsOfRequests(update.text));
      break;
    case TranslationUpdate::Kind::Done:
      finish(work, update.warnings);
      break;
    }
  }

  // Server-sent events. The answer begins with the first one, so that what is refused before has its own status.
  void stream(Work &work, const Json &data, const char *event = nullptr) {
    beginStream(work);
    work.exchange->send((event ? "event: " + std::string(event) + "\n" : "") + "data: " + dumped(data) + "\n\n");
  }
  void beginStream(Work &work) {
    if (std::exchange(work.begun, true))
      return;
    HttpHeaders all = headers();
    all.emplace_back("Cache-Control", "no-cache");
    work.exchange->begin(200, "text/event-stream", all);
  }

  void finish(Work &work, const std::vector<std::string> &warnings) {
    const std::shared_ptr<HttpExchange> exchange = work.exchange;
    if (work.request.stream) {
      stream(work, warnings.empty() ? Json::object() : Json{{"warnings", warnings}}, "done");
      endStream(work, 200);
      return;
    }
    Json result = work.path == "/translate" ? libreTranslate(work) : Json{{"translations", translations(work)}};
    if (!warnings.empty())
      result["warnings"] = warnings;
    const std::string path = work.path;
    const Clock::time_point begin = work.begin;
    forget(work);
    answer(exchange, path, begin, 200, jsonType, dumped(result) + "\n");
  }

  // Of /v1/translate: of a line what the search says of it, and of a document that of each sentence.
  static Json translations(const Work &work) {
    Json all = Json::array();
    if (!work.request.document)
      for (const TranslatedLine &line : work.lines)
        all.push_back(jsonOf(line));
    size_t first = 0;
    for (const Document &document : work.documents) {
      std::vector<std::string> best;
      Json sentences = Json::array();
      for (const std::string &sentence : document.lines()) {
        const TranslatedLine &line = work.lines[first++];
        best.push_back(line.found.empty() ? "" : line.found.front().text);
        sentences.push_back({{"source", sentence}});
        sentences.back().update(jsonOf(line));
      }
      all.push_back({{"translation", document.with(best)}, {"sentences", std::move(sentences)}});
    }
    return all;
  }

  // The k-th translation of a document consists of the k-th ones of its lines, as far as there are so many.
  static Json libreTranslate(const Work &work) {
    Json translated = Json::array(), alternatives = Json::array();
    size_t first = 0;
    for (const Document &document : work.documents) {
      Json others = Json::array();
      for (size_t k = 0; k <= static_cast<size_t>(work.request.alternatives); ++k) {
        std::vector<std::string> texts;
        for (size_t i = 0; i < document.lines().size(); ++i) {
          const std::vector<Translation> &line = work.lines[first + i].found;
          texts.push_back(line.empty() ? "" : line[std::min(k, line.size() - 1)].text);
        }
        const Json text = document.with(texts);
        if (k == 0)
          translated.push_back(text);
        else if (text != translated.back() && std::ranges::find(others, text) == others.end())
          others.push_back(text);
      }
      alternatives.push_back(std::move(others));
      first += document.lines().size();
    }
    const bool list = work.request.isList;
    Json result = {{"translatedText", list ? translated : translated.at(0)}};
    if (work.request.alternatives > 0)
      result["alternatives"] = list ? alternatives : alternatives.at(0);
    return result;
  }

  void fail(Work &work, int status, const std::string &what) {
    const std::shared_ptr<HttpExchange> exchange = work.exchange;
    work.executor->cancel(work.job);
    if (work.begun) { // the status has been sent
      stream(work, {{"error", what}}, "error");
      endStream(work, status);
      return;
    }
    const std::string path = work.path;
    const Clock::time_point begin = work.begin;
    forget(work);
    refuse(exchange, path, begin, status, what);
  }

  void endStream(Work &work, int status) {
    const std::shared_ptr<HttpExchange> exchange = work.exchange;
    metrics.count(work.path, status, std::chrono::duration<double>(Clock::now() - work.begin).count());
    forget(work);
    exchange->end();
  }

  void forget(Work &work) {
    queued -= work.job->lines.size();
    works.erase(&work);
  }

  const ServeOptions &options;
  std::vector<std::string> keys;
  Metrics metrics;
  size_t queued = 0; // lines that were accepted and are not answered
  const std::shared_ptr<AlignmentRoom> alignmentRoom = std::make_shared<AlignmentRoom>(mostHeldPairs);
  bool ending = false;
  std::string failure, listening;
  HttpServer http;
  std::vector<std::unique_ptr<Served>> models;
  std::map<const Work *, std::shared_ptr<Work>> works; // whose executors count for the models
};

} // namespace

void serve(const ServeOptions &options) { Server(options).run(); }

} // namespace xfc
