// What clients ask for, read from the bodies of their requests.
#pragma once

#include "decode/Constraints.h"
#include "serve/Documents.h"
#include "support/Error.h"
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// A request that is refused, with a status of HTTP.
struct RefusedRequest : Error {
  RefusedRequest(int status, const std::string &what) : Error(what), status(status) {}
  int status;
};

struct TranslationRequest {
  std::vector<std::string> texts; // as given: q
  bool isList = false;            // whether q is a list, and so the answer
  std::string source, target;     // codes of languages; empty if they are not given
  std::string apiKey;
  // LibreTranslate's.
  bool html = false;
  int alternatives = 0;
  // Of /v1/translate.
  std::vector<std::string> prefixes;                    // one for each text, or none
  std::vector<std::vector<ConstraintText>> constraints; // for each text, or none
  bool stream = false;
  bool document = false;            // whether the texts are translated sentence by sentence, as LibreTranslate's are
  std::vector<std::string> options; // of the search, as words of a command line: --beam=4

  // A document for each text.
  std::vector<Document> documents() const;
};

// How many constraints a line of a request may have. The work of a step grows with them, and other requests wait.
inline constexpr size_t mostConstraintsOfLine = 64;

// A request to POST /translate: JSON, or a form. Whatever fields LibreTranslate does not have are ignored, as it does.
// Throws RefusedRequest.
TranslationRequest readLibreTranslate(std::string_view contentType, std::string_view body, int mostAlternatives);
// A request to POST /v1/translate, in JSON: q, source, target, prefix, constraints, stream, document, api_key, and
// every option of a search under its name with '_' for '-'. Throws RefusedRequest; whether the options are right shows
// when they are parsed.
TranslationRequest readTranslate(std::string_view contentType, std::string_view body);

// A message about an option, such as --length-penalty, with the name that it has in a request: length_penalty.
std::string inTermsOfRequests(std::string message);

// A direction of translation, as --model FROM-TO=DIR names it.
struct Direction {
  std::string source, target;
  bool operator==(const Direction &) const = default;
};
// "en-fr", or "zh_Hant-pt_BR". Throws Error.
Direction directionOf(const std::string &name);
// A language's name in English, or its code.
std::string languageName(const std::string &code);

} // namespace xfc
