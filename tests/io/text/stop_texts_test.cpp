#include "io/text/stop_texts.h"

#include <gtest/gtest.h>

namespace lyceum {
namespace {

TEST(StopTexts, EndBeforeTheFirstAndHoldBackWhatMayBecomeOne) {
  const StopTexts stops({"</s>", "\n\n", "sa"});
  const auto found = [&](std::string_view text) { return stops.find_in(text); };
  using Found = StopTexts::Found;
  EXPECT_EQ(found(""), (Found{0, false}));
  EXPECT_EQ(found("abc"), (Found{3, false}));
  EXPECT_EQ(found("abc</"), (Found{3, false}));
  EXPECT_EQ(found("abc</s"), (Found{3, false}));
  EXPECT_EQ(found("abc</x"), (Found{6, false}));
  EXPECT_EQ(found("abc</s>d"), (Found{3, true}));
  EXPECT_EQ(found("a\n"), (Found{1, false}));
  EXPECT_EQ(found("a\n\n\nsa"), (Found{1, true}));
  EXPECT_EQ(found("a</sa"), (Found{3, true}));
  EXPECT_EQ(found("s"), (Found{0, false}));
  EXPECT_EQ(StopTexts({}).find_in("abc"), (Found{3, false}));
}

}  // namespace
}  // namespace lyceum
