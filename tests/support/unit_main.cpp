#include <gtest/gtest.h>

#include "support/tested_device.h"

bool lyceum::tests_run_on_gpu() { return false; }

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
