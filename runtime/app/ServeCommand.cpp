// `serve`: translates over HTTP.
#include "app/Commands.h"
#include "decode/Flags.h"
#include "serve/Server.h"

namespace xfc {

namespace {

struct Options {
  ServeOptions serve;
  SearchFlags search;
};

// All values of an option that takes several, and of another one the last.
std::vector<std::string> valuesOf(const CommandOption &option) {
  const std::vector<std::string> &texts = option.texts();
  return option.mostValues() > 1 ? texts : std::vector<std::string>{texts.back()};
}

// The options of the search that the command line gives, as words for the models, whose settings they change.
std::vector<std::string> wordsOf(Command command) {
  SearchFlags flags;
  CommandLine known;
  flags.addAllTo(known);
  std::vector<std::string> words;
  for (const std::string &flag : known.flags())
    if (flag != "--help" && command.given(flag))
      for (const std::string &text : valuesOf(command.option(flag)))
        words.push_back(flag + "=" + text);
  return words;
}

} // namespace

void addServe(Command app) {
  Command command = app.addVerb("serve", "translate over HTTP", "translator serve --model en-fr=run --port 5000");
  auto options = std::make_shared<Options>();
  ServeOptions &serving = options->serve;
  command.setSubject("Server");
  command.addOption("--host", serving.host, "address to listen on; 0.0.0.0 or ::: every address of the machine")
      .showDefault();
  command.addOption("--port", serving.port, "port to listen on; 0: any that is free").within(0, 65535).showDefault();
  command
      .addOption("--model", serving.models,
                 "folder written by train or `xfc import`, weights, or an executable that `pack` wrote; several are "
                 "given as en-fr=PATH, each with its direction; those of the same direction decode together, as an "
                 "ensemble")
      .valueName("[FROM-TO=]PATH")
      .subject("Model");
  serving.model.addLibrariesTo(command, "--model that is not the first of its direction").subject("Model");
  command
      .addOption("--direction", serving.direction,
                 "languages of the one model, such as en-fr; without it, any are taken for its languages")
      .valueName("FROM-TO")
      .subject("Model");
  command.addOption("--api-keys", serving.apiKeys, "file with one key on each line, of which requests need one")
      .valueName("FILE");
  command
      .addOption("--queue", serving.mostWaiting,
                 "maximum number of lines that wait or are translated; a request for more is answered 429")
      .positive()
      .showDefault();
  command.addOption("--timeout", serving.timeout, "maximum number of seconds that a request takes")
      .finitePositive()
      .showDefault();
  command
      .addOption("--idle", serving.http.idleSeconds,
                 "seconds after which a connection on which nothing moves is closed")
      .within(1, 86400)
      .showDefault();
  command.addOption("--max-request", serving.http.bodyBytes, "maximum number of bytes in a request")
      .within(int64_t(1), int64_t(1) << 30)
      .showDefault();
  command.addOption("--max-alternatives", serving.mostAlternatives, "maximum number of alternatives in a request")
      .within(0, 100)
      .showDefault();
  command
      .addOption("--document-tokens", serving.documentTokens,
                 "texts are translated sentence by sentence: split sentences of more tokens than this, at punctuation "
                 "or blanks if possible; 0: only those that are longer than the model's max_length, or a batch")
      .notNegative()
      .showDefault();
  serving.model.addDraftTo(command);
  serving.model.addRescorerTo(command);
  serving.model.addShortlistTo(command);
  addWorkers(command, serving.model.workers);
  serving.model.addEngineTo(command);
  serving.model.addVocabularyTo(command);
  options->search.addAllTo(command);
  command.setWork([options, command] {
    options->serve.search = wordsOf(command);
    serve(options->serve);
  });
}

} // namespace xfc
