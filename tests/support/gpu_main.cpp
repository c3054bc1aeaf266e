#include <gtest/gtest.h>

#include <cstdio>

#include "core/cuda_stream.h"
#include "support/tested_device.h"

bool lyceum::tests_run_on_gpu() { return true; }

/// Main function of tests that need a GPU. Without one it exits with 77, which CTest reports as "skipped".
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!GTEST_FLAG_GET(list_tests) && lyceum::CudaStream::device_count() == 0) {
    std::printf("no device: the tests of this program need a GPU and were not run\n");
    return 77;
  }
  return RUN_ALL_TESTS();
}
