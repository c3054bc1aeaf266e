// Main function of the multi-rank tests. Every rank runs every case. The first failure on any rank aborts all ranks at
// once, so that none waits for another. Tests that need a GPU exit with 77 without one, which CTest reports as
// "skipped".
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "support/tested_device.h"
#ifdef LYCEUM_TEST_DEVICE
#include "core/cuda_stream.h"
#include "core/gpu.h"
#endif

bool lyceum::tests_run_on_gpu() {
#ifdef LYCEUM_TEST_DEVICE
  return true;
#else
  return false;
#endif
}

namespace {

class AbortOnFailure : public testing::EmptyTestEventListener {
 public:
  explicit AbortOnFailure(int rank) : rank_(rank) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const char* file = result.file_name() ? result.file_name() : "?";
    std::fprintf(stderr, "[rank %d] %s:%d: %s\n", rank_, file, result.line_number(), result.message());
    std::fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

 private:
  int rank_;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
#ifdef LYCEUM_TEST_DEVICE
  lyceum::prepare_cuda_for_ranks();
#endif
  int provided = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  // CTest sets it to the number of ranks to start. A launcher of another MPI would start independent processes instead.
  const char* expected = std::getenv("LYCEUM_TEST_RANKS");
  if (expected && std::atoi(expected) != size) {
    std::fprintf(stderr, "%d ranks, but the test needs %s\n", size, expected);
    return 1;
  }
#ifdef LYCEUM_TEST_DEVICE
  if (lyceum::CudaStream::device_count() == 0) {
    if (rank == 0) std::printf("no device: the tests of this program need a GPU and were not run\n");
    MPI_Finalize();
    return 77;
  }
#endif
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {  // one report is enough
    delete listeners.Release(listeners.default_result_printer());
    delete listeners.Release(listeners.default_xml_generator());
  }
  listeners.Append(new AbortOnFailure(rank));
  const int result = RUN_ALL_TESTS();
  MPI_Finalize();
  return result;
}
