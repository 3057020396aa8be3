// Tests what shells and terminals show of a program: completions, the manual page, near misses and colours.
#include "support/CommandLine.h"
#include "support/Shell.h"
#include "support/Terminal.h"
#include "support/Verb.h"
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

using namespace xfc;

namespace {

using Words = std::vector<std::string>;

std::string file;
std::vector<std::string> inputs;
int threads = 0;
bool loud = false;

void addCook(Command app) {
  Command command = app.addVerb("cook", "cook a meal", "kitchen cook soup --heat high");
  command.addOption("meal", file, "what to cook").required();
  command.setSubject("Stove");
  command.addOption("--heat", file, "how hot").oneOf({"low", "high"}).showDefault();
  command.addOption("-o,--output", file, ".dish to fill");
  {
    const Subject others(command, "Machine");
    command.addOption("--threads", threads, "number of cooks");
  }
  command.addFlag("--loud", loud, "sing");
}

void addWash(Command app) {
  Command command = app.addVerb("wash", "wash up");
  command.requireVerb();
  command.addVerb("plates", "wash plates").addOption("--soap", inputs, "brands");
}

constexpr Verb kitchenVerbs[] = {{"cook", addCook}, {"wash", addWash}};

struct Kitchen : CommandLine {
  Kitchen() : CommandLine("kitchen's program", "kitchen") {
    requireVerb();
    addVerbs(*this, kitchenVerbs, "");
  }
};

std::string messageOf(const Words &words) {
  const Kitchen kitchen;
  try {
    parseOptions(kitchen, words);
  } catch (const std::exception &error) {
    return error.what();
  }
  return "";
}

TEST(Completions, VerbsOptionsAndValues) {
  const Kitchen kitchen;
  EXPECT_EQ(completions(kitchen, {""}), (Words{"cook\tcook a meal", "wash\twash up",
                                               "completion\tprint a script that completes command lines in a shell",
                                               "man\tprint the manual page"}));
  EXPECT_EQ(completions(kitchen, {"co"}).size(), 2U);
  EXPECT_EQ(completions(kitchen, {"wash", ""}), (Words{"plates\twash plates"}));
  EXPECT_EQ(completions(kitchen, {"cook", "--o"}), (Words{"--output\t.dish to fill"}));
  EXPECT_EQ(completions(kitchen, {"wash", "plates", "--s"}), (Words{"--soap\tbrands"}));
  EXPECT_EQ(completions(kitchen, {"cook", "--heat", "h"}), (Words{"high\thow hot"}));
  EXPECT_EQ(completions(kitchen, {"cook", "--heat=h"}), (Words{"--heat=high\thow hot"}));
  EXPECT_EQ(completions(kitchen, {"cook", "--heat", "=", "h"}), (Words{"high\thow hot"})) << "bash splits there";
  EXPECT_EQ(completions(kitchen, {"cook", "--heat", "="}).size(), 2U);
  EXPECT_EQ(completions(kitchen, {"completion", "f"}), (Words{"fish\tthe shell"}));
  for (const Words &files :
       {Words{"cook", "so"}, {"cook", "-o", ""}, {"cook", "--threads", ""}, {"cook", "--loud", ""}})
    EXPECT_TRUE(completions(kitchen, files).empty()) << files[1];
}

TEST(Completions, ScriptsAskTheProgram) {
  for (const char *shell : {"bash", "zsh", "fish"}) {
    const std::string script = completionScript(shell, "my-translator");
    EXPECT_NE(script.find("complete"), std::string::npos);
    EXPECT_NE(script.find("_my_translator_complete"), std::string::npos) << shell;
    EXPECT_NE(script.find("my-translator"), std::string::npos) << shell;
    EXPECT_EQ(script.find("FUNCTION"), std::string::npos) << shell;
    EXPECT_EQ(script.find("PROGRAM"), std::string::npos) << shell;
  }
}

TEST(ManualPage, SaysWhatIsDeclared) {
  const std::string page = manualPage(Kitchen());
  for (const char *part :
       {".TH kitchen 1", ".SS kitchen cook\ncook a meal\n", "\\fBmeal\\fR TEXT REQUIRED\nwhat to cook",
        "\n.PP\nStove:\n", "\\fB\\-\\-heat\\fR TEXT:{low,high}", "\nhow hot\n",
        "\\fB\\-o\\fR, \\fB\\-\\-output\\fR TEXT\n\\&.dish to fill\n", "\n.PP\nMachine:\n",
        "kitchen cook soup \\-\\-heat high", ".SS kitchen wash plates\n", ".SS kitchen man\n"})
    EXPECT_NE(page.find(part), std::string::npos) << part << " in\n" << page;
  EXPECT_LT(page.find("Stove:"), page.find("\\-\\-loud")) << "the subject is that of before the block";
  EXPECT_LT(page.find("\\-\\-loud"), page.find("Machine:"));
}

TEST(NearMisses, VerbsOptionsAndValues) {
  EXPECT_EQ(messageOf({"cok", "soup"}), "unknown verb 'cok'; did you mean 'cook'? verbs: cook, wash, completion, man");
  EXPECT_EQ(messageOf({"dance"}), "unknown verb 'dance'; verbs: cook, wash, completion, man");
  EXPECT_EQ(messageOf({}), "a verb is required; verbs: cook, wash, completion, man");
  EXPECT_EQ(messageOf({"wash", "plate"}), "unknown verb 'plate'; did you mean 'plates'? verbs: plates");
  EXPECT_EQ(messageOf({"cook", "soup", "--heet", "low"}), "--heet: unknown option; did you mean '--heat'?");
  EXPECT_EQ(messageOf({"cook", "soup", "--heet=low"}), "--heet: unknown option; did you mean '--heat'?");
  EXPECT_EQ(messageOf({"cook", "soup", "-O", "x"}), "-O: unknown option; did you mean '-o'?");
  EXPECT_EQ(messageOf({"cook", "soup", "--heat", "hihg"}),
            "--heat: unknown 'hihg'; did you mean 'high'? known: low, high");
  EXPECT_EQ(messageOf({"cook", "soup", "--heat", "warm!"}), "--heat: unknown 'warm!'; known: low, high");
  EXPECT_EQ(messageOf({"cook", "soup", "--heat", "low"}), "");
}

TEST(Colours, OnTerminalsThatShowThem) {
  const std::string text = "Usage: kitchen\n\nOptions:\n  --heat: hot\n";
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_TRUE(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
  std::FILE *terminal = std::fopen(ptsname(master), "w");
  ASSERT_TRUE(terminal);
  unsetenv("NO_COLOR");
  setenv("TERM", "xterm", 1);
  EXPECT_EQ(withBoldHeadings(text, terminal),
            "\033[1mUsage:\033[0m kitchen\n\n\033[1mOptions:\033[0m\n  --heat: hot\n");
  setenv("NO_COLOR", "1", 1);
  EXPECT_EQ(withBoldHeadings(text, terminal), text);
  unsetenv("NO_COLOR");
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(hasColours(terminal));
  setenv("TERM", "xterm", 1);
  std::FILE *plain = std::tmpfile();
  EXPECT_EQ(withBoldHeadings(text, plain), text) << "a file";
  std::fclose(plain);
  std::fclose(terminal);
  ::close(master);
}

} // namespace
