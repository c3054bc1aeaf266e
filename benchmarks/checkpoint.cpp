// mpirun -n RANKS benchmarks/checkpoint [TENSORS MEGABYTES]
// All ranks save a model's tensors with both moments (mostly expert matrices, some norm vectors) in a directory below
// the current one, and read them back. Then they save once more in the background, to compare the time that training
// would stop for with that of the plain save.
#include "io/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <thread>

#include "core/clock.h"

namespace lyceum {
namespace {

/// Returns this rank's share of `tensors` logical tensors of about `bytes` bytes in total, assigned round-robin. Every
/// fourth is a vector. All refer to the memory of `values`, which is overwritten.
std::vector<CheckpointSlice> make_slices(const ProcessGroup& group, std::int64_t tensors, double bytes,
                                         std::vector<float>& values) {
  const std::int64_t cols = 512;
  const auto rows = std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / 4 / cols / (0.75 * double(tensors))));
  values.assign(static_cast<std::size_t>(rows * cols), 0.5f);
  std::vector<CheckpointSlice> slices;
  for (std::int64_t i = 0; i < tensors; ++i) {
    if (i % group.size() != group.rank()) continue;
    constexpr std::array parts{"", "optimizer/exp_avg/", "optimizer/exp_avg_sq/"};
    const std::string name = fmt::format("{}model/layers/{}/mlp/experts/{}/gate_proj/weight",
                                         parts[static_cast<std::size_t>(i % 3)], i / 3 / 64, i / 3 % 64);
    const Shape shape = i % 4 == 0 ? Shape{cols} : Shape{rows, cols};
    slices.push_back({name, shape, Box::whole(shape), values.data()});
  }
  return slices;
}

CheckpointHeader header(std::int64_t step) {
  return {.run_uuid = "u", .step = step, .mesh = "", .config = "", .trainer_state = "{}"};
}

/// Returns the largest `seconds` of all ranks. Collective.
double most(const ProcessGroup& group, double seconds) {
  group.all_reduce(std::span(&seconds, 1), Reduction::max);
  return seconds;
}

/// Measures a background checkpoint. `plain` is the time in seconds of write_checkpoint() with the same slices.
/// Collective.
void measure_background(const ProcessGroup& group, const std::filesystem::path& root,
                        std::span<const CheckpointSlice> slices, double plain) {
  const auto begin = Clock::now();
  BackgroundCheckpoint checkpoint(group, root, header(2), slices);
  const double begun = most(group, seconds_since(begin));
  while (!checkpoint.written()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const double written = most(group, seconds_since(begin));
  checkpoint.publish();
  const double all = most(group, seconds_since(begin));
  if (group.rank() != 0) return;
  fmt::print("{:28} {:7.3f} s\n", "write in the background", all);
  fmt::print("  {:26} {:7.3f} s\n  {:26} {:7.3f} s\n", "until it is copied", begun, "publish", all - written);
  const double stopped = begun + all - written;
  fmt::print("  {:26} {:7.3f} s, {:.3f} of the plain save\n", "training stops for", stopped, stopped / plain);
}

void measure(std::int64_t tensors, double megabytes) {
  const ProcessGroup group = ProcessGroup::world(600);
  const std::filesystem::path root = "checkpoint-benchmark";
  std::vector<float> values;
  const std::vector<CheckpointSlice> slices = make_slices(group, tensors, megabytes * 1e6, values);
  const auto report = [&](const char* what, Clock::time_point begin) {
    group.barrier();
    if (group.rank() == 0) fmt::print("{:28} {:7.3f} s\n", what, seconds_since(begin));
  };
  const auto begin_write = Clock::now();
  auto begin_phase = begin_write;
  std::string phase;
  const auto probe = [&](std::string_view now) {
    if (now == phase) return;
    if (group.rank() == 0 && !phase.empty()) fmt::print("  {:26} {:7.3f} s\n", phase, seconds_since(begin_phase));
    phase = now;
    begin_phase = Clock::now();
  };
  write_checkpoint(group, root, header(1), slices, probe);
  const double plain = most(group, seconds_since(begin_write));
  report("write", begin_write);
  const auto begin_choose = Clock::now();
  const auto reader = choose_checkpoint(group, root, "auto", [](const std::string& text) { fmt::print("{}\n", text); });
  report("choose (verifies)", begin_choose);
  const auto begin_read = Clock::now();
  std::vector<float> out(values.size());
  for (const CheckpointSlice& slice : slices) reader.value().read(slice.name, slice.box, out.data());
  report("read own", begin_read);
  const auto begin_others = Clock::now();
  const CheckpointReader again(reader->directory());
  for (const CheckpointReader::Entry& entry : again.tensors())
    again.read(entry.name, Box::whole(entry.shape), out.data());
  report("read all, every rank", begin_others);
  measure_background(group, root, slices, plain);
  if (group.rank() == 0) std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace lyceum

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  lyceum::measure(argc > 1 ? std::atoll(argv[1]) : 4500, argc > 2 ? std::atof(argv[2]) : 300);
  MPI_Finalize();
}
