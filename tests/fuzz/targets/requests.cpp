// Fuzzes the bodies of requests to `serve`: JSON if they begin like it, and else a form; and the text and HTML in them.
// A body is also a line of `translate --constraints`.
#include "serve/Requests.h"
#include "../JsonMutator.h"

using namespace xfc;

static void use(const TranslationRequest &request) {
  for (const Document &document : request.documents()) {
    const std::string same = document.with(document.lines());
    const Document again = request.html ? Document::ofHtml(same) : Document::ofText(same);
    fuzz::expect(again.lines() == document.lines(), "what is translated is the same in a document that stays as it is");
    fuzz::expect(again.with(again.lines()) == same, "a document stays as it is if its lines do");
    for (const std::string &line : document.lines())
      fuzz::expect(line.find('\n') == std::string::npos, "a line has no line breaks");
  }
}

static void useAsConstraints(std::string_view line) {
  const std::vector<ConstraintText> constraints = constraintsOfLine(line);
  std::string joined;
  for (const ConstraintText &phrases : constraints) {
    joined += &phrases == &constraints.front() ? "" : "\t";
    for (const std::string &phrase : phrases) {
      fuzz::expect(phrase.find('\t') == std::string::npos, "a tab stands between constraints");
      joined += (&phrase == &phrases.front() ? "" : " || ") + phrase;
    }
  }
  fuzz::expect(constraintsOfLine(joined) == constraints, "a line of the phrases has the same phrases");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view body = fuzz::textOf(data, size);
  const bool json = body.starts_with('{');
  fuzz::expectOnlyErrors([&] { directionOf(std::string(body)); });
  fuzz::accepted = false; // by the interfaces, which are what seeds are for
  fuzz::expectOnlyErrors([&] {
    TranslationRequest request =
        readLibreTranslate(json ? "application/json" : "application/x-www-form-urlencoded", body, 9);
    use(request);
    request.html = !request.html;
    use(request);
  });
  if (json)
    fuzz::expectOnlyErrors([&] { readTranslate("application/json", body); });
  inTermsOfRequests(std::string(body));
  useAsConstraints(body);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  const std::string_view body = fuzz::textOf(data, size);
  return body.starts_with('{') ? fuzz::replaced(data, size, most, fuzz::JsonMutator(seed).change(body, most))
                               : LLVMFuzzerMutate(data, size, most);
}
