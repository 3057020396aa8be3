// How requests are read, and why they are refused; and what a server counts.
#include "serve/Http.h"
#include "serve/Metrics.h"
#include "serve/Requests.h"
#include <gtest/gtest.h>

using namespace xfc;

namespace {

using Words = std::vector<std::string>;

constexpr const char *json = "application/json; charset=utf-8", *form = "application/x-www-form-urlencoded";

// Status and message, or "accepted".
std::string refusal(const std::function<void()> &read) {
  try {
    read();
  } catch (const RefusedRequest &refused) {
    return std::to_string(refused.status) + " " + refused.what();
  }
  return "accepted";
}
std::string libre(const std::string &body, const char *type = json) {
  return refusal([&] { readLibreTranslate(type, body, 3); });
}
std::string ours(const std::string &body, const char *type = json) {
  return refusal([&] { readTranslate(type, body); });
}

} // namespace

TEST(Requests, LibreTranslateInJson) {
  const TranslationRequest one = readLibreTranslate(
      json,
      R"({"q": "a\nb", "source": "en", "target": "fr", "format": "html", "api_key": "k", "alternatives": 2, "x": 1})",
      3);
  EXPECT_EQ(one.texts, Words{"a\nb"});
  EXPECT_FALSE(one.isList);
  EXPECT_TRUE(one.html);
  EXPECT_EQ(one.source + one.target + one.apiKey, "enfrk");
  EXPECT_EQ(one.alternatives, 2);
  EXPECT_EQ(one.documents()[0].lines(), Words{"a b"});
  const TranslationRequest list = readLibreTranslate("", R"({"q": ["a\nb", ""], "source": "en", "target": null})", 3);
  EXPECT_EQ(list.texts, (Words{"a\nb", ""}));
  EXPECT_TRUE(list.isList);
  EXPECT_EQ(list.documents()[0].lines(), (Words{"a", "b"}));
  EXPECT_TRUE(list.documents()[1].lines().empty());
}

TEST(Requests, LibreTranslateInAForm) {
  const TranslationRequest one =
      readLibreTranslate(form, "q=a%20b+%C3%A9%0A%zz&source=en&target=fr&alternatives=3&&=x&format=", 3);
  EXPECT_EQ(one.texts, Words{"a b \xC3\xA9\n%zz"});
  EXPECT_EQ(one.alternatives, 3);
  EXPECT_FALSE(one.isList);
  EXPECT_EQ(readLibreTranslate(form, "q=a&q=b&q=c&source=en&target=fr", 3).texts, (Words{"a", "b", "c"}));
}

TEST(Requests, LibreTranslateRefusals) {
  EXPECT_EQ(libre(R"({"q": "a", "source": "en", "target": "fr"})"), "accepted");
  EXPECT_EQ(libre("{}"), "400 Invalid request: missing q parameter");
  EXPECT_EQ(libre(R"({"q": "a", "target": "fr"})"), "400 Invalid request: missing source parameter");
  EXPECT_EQ(libre(R"({"q": {}, "source": "en", "target": "fr"})"),
            "400 q: expected a string or a list of strings, found {}");
  EXPECT_EQ(libre(R"({"q": ["a", 1], "source": "en", "target": "fr"})"), "400 q: expected strings, found 1");
  EXPECT_EQ(libre(R"({"q": "a", "source": 5, "target": "fr"})"), "400 source: expected a string, found 5");
  EXPECT_EQ(libre(R"({"q": "a", "source": "en", "target": "fr", "format": "doc"})"),
            "400 \"doc\" format is not supported; expected text or html");
  EXPECT_EQ(libre(R"({"q": "a", "source": "en", "target": "fr", "alternatives": 4})"),
            "400 alternatives: at most 3, but 4 were asked for");
  for (const char *wrong : {"-1", "1.5", "\"x\"", "[]"})
    EXPECT_EQ(libre(std::string(R"({"q": "a", "source": "en", "target": "fr", "alternatives": )") + wrong + "}"),
              std::string("400 alternatives: expected a whole number from 0 on, found ") + wrong);
  EXPECT_EQ(libre("[1]"), "400 the body is not a JSON object, such as {\"q\": \"...\"}");
  EXPECT_TRUE(libre("{").starts_with("400 the body: line 1, column 2: not JSON"));
  EXPECT_TRUE(libre("{\"q\": \"\xFF\"}").starts_with("400 the body: "));
  EXPECT_EQ(libre("q=%FF&source=en&target=fr", form), "400 q: byte 1 is not valid UTF-8");
  EXPECT_EQ(libre("{}", "multipart/form-data; boundary=x"),
            "415 Content-Type: expected application/json or application/x-www-form-urlencoded");
}

TEST(Requests, EveryOptionOfASearchIsAWord) {
  const TranslationRequest request = readTranslate(
      json,
      R"({"q": ["a", "b"], "prefix": ["x", ""], "stream": true, "beam": 4, "length_penalty": 0.5, "sample": true,
          "early_stopping": "never", "suppress": [5, "▁the"], "bad_sequences": [[4, 5], ["a"]],
          "required_phrases": [[["▁x", 4], [5]], [6, 7]], "seed": 18446744073709551615, "min_length": null})");
  EXPECT_EQ(request.prefixes, (Words{"x", ""}));
  EXPECT_TRUE(request.stream);
  Words options = request.options;
  std::sort(options.begin(), options.end());
  EXPECT_EQ(options, (Words{"--bad-sequences=4 5", "--bad-sequences=a", "--beam=4", "--early-stopping=never",
                            "--length-penalty=0.5", "--required-phrases=6 7", "--required-phrases=▁x 4 || 5",
                            "--sample=true", "--seed=18446744073709551615", "--suppress=5 ▁the"}));
  EXPECT_EQ(ours(R"({"q": "a", "required_phrases": [[[[4]]]]})"),
            "400 required_phrases of a choice: expected tokens, found [4]");
  EXPECT_EQ(ours(R"({"q": "a", "bad_sequences": [[[4]]]})"), "400 bad_sequences: expected tokens, found [4]");
  const std::vector<Words> many(mostConstraintsOfLine + 1, Words{"x"});
  EXPECT_EQ(ours(nlohmann::json({{"q", "a"}, {"required_phrases", many}}).dump()),
            "400 required_phrases: at most 64 for a line, but 65 were given");
}

TEST(Requests, ConstraintsHaveTheShapeOfTheTexts) {
  using Texts = std::vector<std::vector<ConstraintText>>;
  EXPECT_EQ(readTranslate(json, R"({"q": "a", "constraints": ["x y", ["z", "w"]]})").constraints,
            (Texts{{{"x y"}, {"z", "w"}}}));
  EXPECT_EQ(readTranslate(json, R"({"q": ["a", "b"], "constraints": [[], ["x", ["z"]]]})").constraints,
            (Texts{{}, {{"x"}, {"z"}}}));
  EXPECT_EQ(readTranslate(json, R"({"q": "a", "constraints": []})").constraints, Texts(1));
  EXPECT_EQ(readTranslate(json, R"({"q": "a", "constraints": null})").constraints, Texts());
  EXPECT_EQ(ours(R"({"q": "a", "constraints": "x"})"),
            "400 constraints: expected a list of phrases, or of lists of phrases of which one is enough, found \"x\"");
  EXPECT_EQ(ours(R"({"q": ["a", "b"], "constraints": [["x"]]})"),
            "400 constraints: expected a list for each of the 2 texts of q, found 1");
  EXPECT_EQ(ours(R"({"q": ["a"], "constraints": {}})"),
            "400 constraints: expected a list for each of the 1 texts of q, found {}");
  EXPECT_EQ(ours(R"({"q": ["a"], "constraints": ["x"]})"),
            "400 constraints: expected a list of phrases, or of lists of phrases of which one is enough, found \"x\"");
  const auto many = [](size_t count) {
    std::string words = R"("x")";
    for (size_t i = 1; i < count; ++i)
      words += R"(, "x")";
    return R"({"q": ["a", "b"], "constraints": [[], [)" + words + "]]}";
  };
  EXPECT_EQ(readTranslate(json, many(64)).constraints[1].size(), 64u);
  EXPECT_EQ(ours(many(65)), "400 constraints: at most 64 for a line, but 65 were given");
  EXPECT_EQ(ours(R"({"q": "a", "constraints": [1]})"),
            "400 constraints: expected a phrase, or a list of phrases, found 1");
  EXPECT_EQ(ours(R"({"q": "a", "constraints": [["x", 1]]})"), "400 constraints: expected phrases, found 1");
  EXPECT_EQ(ours(R"({"q": "a", "constraints": ["x\ny"]})"), "400 constraints: a phrase is a part of one line");
}

TEST(Requests, OurRefusals) {
  EXPECT_EQ(ours(R"({"q": "a"})"), "accepted");
  EXPECT_EQ(ours(R"({"q": "a\nb"})"), "400 q: a text is one line; give a list with one line each, or document: true");
  EXPECT_EQ(ours(R"({"q": ["a", "b"], "prefix": "x"})"),
            "400 prefix: expected one for each of the 2 texts of q, found 1");
  EXPECT_EQ(ours(R"({"q": "a", "prefix": "x\ny"})"), "400 prefix: a prefix is the beginning of one line");
  EXPECT_EQ(ours(R"({"q": "a", "stream": 1})"), "400 stream: expected true or false, found 1");
  EXPECT_EQ(ours(R"({"q": "a", "batch_tokens": 1})"),
            "400 batch_tokens: is the server's, which batches requests as they come");
  EXPECT_TRUE(ours(R"({"q": "a", "suppress": {"a": 1}})").starts_with("400 suppress: expected a number, a string"));
  EXPECT_EQ(ours(R"({"q": "a", "suppress": [1.5]})"), "400 suppress: expected tokens, found 1.5");
  EXPECT_EQ(ours("q=a", form), "415 Content-Type: expected application/json");
}

TEST(Requests, MessagesNameOptionsAsRequestsDo) {
  EXPECT_EQ(inTermsOfRequests("--n-best is larger than --beam: a beam -- and so on; --length-penalty-form"),
            "n_best is larger than beam: a beam -- and so on; length_penalty_form");
}

TEST(Requests, Directions) {
  EXPECT_EQ(directionOf("en-fr"), (Direction{"en", "fr"}));
  EXPECT_EQ(directionOf("zh_Hant-pt_BR"), (Direction{"zh_Hant", "pt_BR"}));
  for (const char *wrong : {"", "en", "en-", "-fr", "en-fr-de", "e n-fr", "en-\xC3\xA9"})
    EXPECT_THROW(directionOf(wrong), Error) << wrong;
  EXPECT_EQ(languageName("de"), "German");
  EXPECT_EQ(languageName("tlh"), "tlh");
}

TEST(Http, PercentSigns) {
  EXPECT_EQ(percentDecoded("a%20b+c%2", false), "a b+c%2");
  EXPECT_EQ(percentDecoded("a%20b+c%2G%", true), "a b c%2G%");
  EXPECT_EQ(percentDecoded("%e2%82%AC", true), "\xE2\x82\xAC");
}

TEST(Metrics, AreInPrometheusFormat) {
  Metrics metrics;
  metrics.count("/translate", 200, 0.004);
  metrics.count("/translate", 200, 0.07);
  metrics.count("/translate", 429, 100);
  std::string text = metrics.text();
  for (const char *line :
       {"# TYPE xfc_requests_total counter", "xfc_requests_total{path=\"/translate\",code=\"200\"} 2",
        "xfc_requests_total{path=\"/translate\",code=\"429\"} 1", "# TYPE xfc_request_seconds histogram",
        "xfc_request_seconds_bucket{path=\"/translate\",le=\"0.005\"} 1",
        "xfc_request_seconds_bucket{path=\"/translate\",le=\"0.05\"} 1",
        "xfc_request_seconds_bucket{path=\"/translate\",le=\"0.1\"} 2",
        "xfc_request_seconds_bucket{path=\"/translate\",le=\"30\"} 2",
        "xfc_request_seconds_bucket{path=\"/translate\",le=\"+Inf\"} 3",
        "xfc_request_seconds_count{path=\"/translate\"} 3"})
    EXPECT_NE(text.find(std::string(line) + "\n"), std::string::npos) << line << "\n" << text;
  Metrics::add(text, "xfc_x", "gauge", "x", "model=\"a\"", 1.5);
  Metrics::add(text, "xfc_x", "gauge", "x", "", 2);
  EXPECT_TRUE(text.ends_with("# HELP xfc_x x\n# TYPE xfc_x gauge\nxfc_x{model=\"a\"} 1.5\nxfc_x 2\n")) << text;
}
