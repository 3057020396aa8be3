// A grammar of English sentences and their French translations. Words change their places and forms: French adjectives
// follow most nouns and agree with them in gender, and hours are told in another order.
#include "DemoSentences.h"
#include <cctype>
#include <iterator>
#include <random>
#include <set>

namespace xfc {
namespace {

struct Both {
  const char *english, *french;
};
struct Noun {
  const char *english, *french; // plurals
  bool feminine;
};
struct Adjective {
  const char *english, *masculine, *feminine; // plurals
  bool first;                                 // before the noun in French
};

constexpr Both days[] = {{"Monday", "lundi"},   {"Tuesday", "mardi"},   {"Wednesday", "mercredi"},
                         {"Thursday", "jeudi"}, {"Friday", "vendredi"}, {"Saturday", "samedi"},
                         {"Sunday", "dimanche"}};
constexpr Both numbers[] = {
    {"one", "une"},         {"two", "deux"},          {"three", "trois"},    {"four", "quatre"},
    {"five", "cinq"},       {"six", "six"},           {"seven", "sept"},     {"eight", "huit"},
    {"nine", "neuf"},       {"ten", "dix"},           {"eleven", "onze"},    {"twelve", "douze"},
    {"thirteen", "treize"}, {"fourteen", "quatorze"}, {"fifteen", "quinze"}, {"sixteen", "seize"}};
constexpr size_t hours = 11; // of the numbers
constexpr Both minutes[] = {{" o'clock", ""}, {"half past ", " et demie"}, {"a quarter past ", " et quart"}};
constexpr Both people[] = {{"the teacher", "le professeur"},  {"my sister", "ma sœur"},
                           {"the old man", "le vieil homme"}, {"a student", "un étudiant"},
                           {"our neighbour", "notre voisin"}, {"the queen", "la reine"},
                           {"her brother", "son frère"},      {"the baker", "le boulanger"},
                           {"a doctor", "un médecin"},        {"your friend", "votre ami"}};
constexpr Both verbs[] = {{"bought", "a acheté"},        {"saw", "a vu"},
                          {"found", "a trouvé"},         {"sold", "a vendu"},
                          {"lost", "a perdu"},           {"painted", "a peint"},
                          {"brought", "a apporté"},      {"washed", "a lavé"},
                          {"did not see", "n'a pas vu"}, {"did not sell", "n'a pas vendu"}};
constexpr Noun nouns[] = {{"apples", "pommes", true},    {"books", "livres", false},    {"cars", "voitures", true},
                          {"chairs", "chaises", true},   {"hats", "chapeaux", false},   {"flowers", "fleurs", true},
                          {"boats", "bateaux", false},   {"letters", "lettres", true},  {"dogs", "chiens", false},
                          {"windows", "fenêtres", true}, {"knives", "couteaux", false}, {"plates", "assiettes", true}};
constexpr Adjective adjectives[] = {{"green ", "verts", "vertes", false},     {"white ", "blancs", "blanches", false},
                                    {"black ", "noirs", "noires", false},     {"heavy ", "lourds", "lourdes", false},
                                    {"small ", "petits", "petites", true},    {"beautiful ", "beaux", "belles", true},
                                    {"expensive ", "chers", "chères", false}, {"", "", "", false}};
constexpr Both places[] = {{"in the market", "au marché"},
                           {"at the station", "à la gare"},
                           {"in the garden", "dans le jardin"},
                           {"near the river", "près de la rivière"},
                           {"in Paris", "à Paris"},
                           {"at school", "à l'école"},
                           {"behind the house", "derrière la maison"},
                           {"on the bridge", "sur le pont"}};

class Grammar {
public:
  std::pair<std::string, std::string> sentence() {
    const auto [when, quand] = time();
    const Both &who = one(people), &did = one(verbs), &where = one(places);
    const auto [what, quoi] = things();
    std::string english = std::string(who.english) + " " + did.english + " " + what + " " + where.english,
                french = std::string(who.french) + " " + did.french + " " + quoi + " " + where.french;
    if (random() % 2)
      return {capital(when) + ", " + english + ".", capital(quand) + ", " + french + "."};
    return {capital(english) + " " + when + ".", capital(french) + " " + quand + "."};
  }

private:
  template <typename T, size_t N> const T &one(const T (&all)[N], size_t most = N) { return all[random() % most]; }

  static std::string capital(std::string text) { // every sentence begins with a letter of ASCII
    text[0] = static_cast<char>(std::toupper(text[0]));
    return text;
  }

  std::pair<std::string, std::string> time() {
    const Both &day = one(days), &hour = one(numbers, hours), &minute = one(minutes);
    const bool full = minute.french[0] == '\0';
    const std::string clock =
        full ? std::string(hour.english) + minute.english : std::string(minute.english) + hour.english;
    return {std::string("on ") + day.english + " at " + clock,
            std::string(day.french) + " à " + hour.french + (&hour == numbers ? " heure" : " heures") + minute.french};
  }

  std::pair<std::string, std::string> things() {
    const Both &number = numbers[1 + random() % (std::size(numbers) - 1)];
    const Noun &noun = one(nouns);
    const Adjective &adjective = one(adjectives);
    const std::string agreed = noun.feminine ? adjective.feminine : adjective.masculine;
    const std::string french = agreed.empty()    ? std::string(noun.french)
                               : adjective.first ? agreed + " " + noun.french
                                                 : noun.french + (" " + agreed);
    return {std::string(number.english) + " " + adjective.english + noun.english, number.french + (" " + french)};
  }

  std::mt19937 random; // the C++ standard fixes its numbers
};

} // namespace

std::vector<std::pair<std::string, std::string>> demoSentences(size_t count) {
  Grammar grammar;
  std::vector<std::pair<std::string, std::string>> sentences;
  std::set<std::string> known;
  while (sentences.size() < count)
    if (auto sentence = grammar.sentence(); known.insert(sentence.first).second)
      sentences.push_back(std::move(sentence));
  return sentences;
}

} // namespace xfc
