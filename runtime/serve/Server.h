// Serves translations over HTTP: LibreTranslate's interface, our own, and what those who run a server need.
#pragma once

#include "decode/ModelOptions.h"
#include "serve/Http.h"
#include <string>
#include <vector>

namespace xfc {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 5000;
  // [FROM-TO=]PATH each; none: the model of a packed executable. Those of the same direction are an ensemble.
  std::vector<std::string> models;
  std::string direction; // FROM-TO, of a model for which `models` names none; empty: any
  // Without the folder: what all models share. It has a library for each of `models` that is not the first of its
  // direction, or none.
  ModelOptions model;
  std::vector<std::string> search; // words: the server's settings of the search
  std::string apiKeys;             // a file with one key on each line; empty: everybody may ask
  int64_t mostWaiting = 1024;      // lines that are not translated yet; a request for more is told to come again
  double timeout = 60;             // seconds that a request may take
  int mostAlternatives = 9;
  int64_t documentTokens = 0; // longer sentences of documents are split; 0: those that the model cannot read
  HttpLimits http;
};

// Serves until a signal ends it, after the requests that came before are answered. Throws Error if it cannot begin.
void serve(const ServeOptions &options);

} // namespace xfc
