#include "config/aliases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "config/binding.h"
#include "config/keys.h"
#include "io/files/whole_file.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

LoadedConfig read(const std::vector<std::string>& arguments, const LoadedConfig& base = {}) {
  return read_config(arguments, base);
}

TEST(OtherNames, LeadToTheirKeys) {
  Config config;
  for (const ConfigKey& key : keys_of(config)) {
    for (const std::string_view name : key.other_names) EXPECT_EQ(key_of_other_name(name), key.name) << name;
  }
  EXPECT_EQ(key_of_other_name("model.num-layers"), "model.layers");
  EXPECT_EQ(key_of_other_name("layers"), "");
}

TEST(Aliases, StandForAValueOfTheirKey) {
  for (const char* yes : {"--moe.renormalize=true", "--moe.renormalize=yes"}) {
    const LoadedConfig loaded = read({yes});
    EXPECT_THAT(loaded.mistakes, IsEmpty());
    EXPECT_EQ(loaded.config.moe.gates, Gates::renormalized);
    EXPECT_TRUE(loaded.origin.contains("moe.gates"));
    EXPECT_THAT(to_ini(loaded.config), HasSubstr("\ngates = renormalized\n"));
  }
  EXPECT_EQ(read({"--moe.renormalize", "true"}).config.moe.gates, Gates::renormalized);
  EXPECT_EQ(read({"--moe.renormalize=false"}).config.moe.gates, std::nullopt);
  EXPECT_EQ(read({"--moe.renormalize=true", "--moe.renormalize=false"}).config.moe.gates, std::nullopt);
  EXPECT_THAT(read({"--moe.renormalize=maybe"}).mistakes,
              ElementsAre(HasSubstr("moe.renormalize = maybe on the command line: 'maybe' is not true or false")));
  EXPECT_THAT(read({"--moe.renormalize"}).mistakes, ElementsAre(HasSubstr("a value is missing")));
  EXPECT_THAT(read({"--moe.renormalise=1"}).mistakes, ElementsAre(HasSubstr("did you mean moe.renormalize?")));
}

TEST(Aliases, MayAgreeWithTheirKeyButNotContradictIt) {
  const auto gates = [](const std::string& lines) { return parse_config("[moe]\n" + lines, "run").config.moe.gates; };
  EXPECT_EQ(gates("gates = auto\nrenormalize = true\n"), Gates::renormalized);
  EXPECT_EQ(gates("renormalize = true\ngates = renormalized\n"), Gates::renormalized);
  // Earlier versions wrote both keys, with false if renormalize was not given.
  EXPECT_EQ(gates("gates = auto\nrenormalize = false\n"), std::nullopt);
  EXPECT_EQ(gates("gates = ones\nrenormalize = false\n"), Gates::ones);
  EXPECT_EQ(gates("gates = renormalized\nrenormalize = false\n"), Gates::renormalized);
  EXPECT_EQ(parse_config_leniently("[moe]\ngates = detached\nrenormalize = false\n").moe.gates, Gates::detached);
  for (const std::vector<std::string>& both : {std::vector<std::string>{"--moe.renormalize=true", "--moe.gates=raw"},
                                               {"--moe.gates=raw", "--moe.renormalize=true"}}) {
    EXPECT_THAT(read(both).mistakes, ElementsAre("moe.renormalize = true with moe.gates = raw: set moe.renormalize = "
                                                 "false, or moe.gates = renormalized"));
  }
}

TEST(Aliases, OverrideTheKeyOfTheConfigurationBelow) {
  const LoadedConfig checkpoint = parse_config("[moe]\ngates = ones\nrenormalize = false\n", "a checkpoint");
  const LoadedConfig loaded = read({"--moe.renormalize=true"}, checkpoint);
  EXPECT_THAT(loaded.mistakes, IsEmpty());
  EXPECT_EQ(loaded.config.moe.gates, Gates::renormalized);
  EXPECT_EQ(read({"--moe.renormalize=false"}, checkpoint).config.moe.gates, std::nullopt);
  EXPECT_EQ(read({"--moe.top_k=2"}, checkpoint).config.moe.gates, Gates::ones);
}

TEST(Aliases, OfTheCommandLineReplaceTheKeyOfAFile) {
  const TemporaryDirectory directory;
  const auto gates = [&](const std::string& line, const std::string& argument) {
    const std::string file = directory.path() / "run.ini";
    write_whole_file(file, "[moe]\n" + line + "\n");
    const LoadedConfig loaded = read({"--config=" + file, argument});
    EXPECT_THAT(loaded.mistakes, IsEmpty());
    return loaded.config.moe.gates;
  };
  EXPECT_EQ(gates("gates = renormalized", "--moe.renormalize=false"), std::nullopt);
  EXPECT_EQ(gates("gates = raw", "--moe.renormalize=true"), Gates::renormalized);
  EXPECT_EQ(gates("renormalize = true", "--moe.gates=auto"), std::nullopt);
  EXPECT_EQ(gates("renormalize = true", "--moe.gates=raw"), Gates::raw);
}

}  // namespace
}  // namespace lyceum
