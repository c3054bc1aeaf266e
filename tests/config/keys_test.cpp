#include "config/keys.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "config/config.h"
#include "io/data/encoding/chat.h"

namespace lyceum {
namespace {

/// The chat templates listed in the configuration are those of the code.
TEST(Keys, KnowAllChatTemplates) {
  Config config;
  for (const ConfigKey& key : keys_of(config)) {
    if (std::string_view(key.name) != "data.chat") continue;
    std::string names = "auto";
    for (const ChatTemplate& chat : chat_templates()) names.append(" | ").append(chat.name);
    EXPECT_EQ(key.setting.name(), names);
    return;
  }
  FAIL() << "there is no data.chat";
}

}  // namespace
}  // namespace lyceum
