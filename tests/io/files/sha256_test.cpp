#include "io/files/sha256.h"

#include <gtest/gtest.h>

namespace lyceum {
namespace {

TEST(Sha256, KnownAnswer) {  // FIPS 180-2, appendix B.1
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace lyceum
