// mpirun -n RANKS benchmarks/checkpoint [TENSORS MEGABYTES]: a model's tensors and both moments, most of them matrices
// of experts and some norm vectors, saved and read back by all ranks in a directory below the current one.
#include "io/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <mpi.h>

#include <cstdlib>
#include <filesystem>

#include "core/clock.h"

namespace lyceum {
namespace {

/// `tensors` logical tensors, every fourth a vector, of about `bytes` bytes together; owned round robin.
std::vector<CheckpointPiece> make_pieces(const ProcessGroup& group, std::int64_t tensors, double bytes,
                                         std::vector<float>& values) {
  const std::int64_t cols = 512;
  const auto rows = std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / 4 / cols / (0.75 * double(tensors))));
  values.assign(static_cast<std::size_t>(rows * cols), 0.5f);
  std::vector<CheckpointPiece> pieces;
  for (std::int64_t i = 0; i < tensors; ++i) {
    if (i % group.size() != group.rank()) continue;
    const std::string part = i % 3 == 0 ? "" : i % 3 == 1 ? "optimizer/exp_avg/" : "optimizer/exp_avg_sq/";
    const std::string name =
        fmt::format("{}model/layers/{}/mlp/experts/{}/gate_proj/weight", part, i / 3 / 64, i / 3 % 64);
    const Shape shape = i % 4 == 0 ? Shape{cols} : Shape{rows, cols};
    pieces.push_back({name, shape, Box::whole(shape), values.data()});
  }
  return pieces;
}

void measure(std::int64_t tensors, double megabytes) {
  const ProcessGroup group = ProcessGroup::world(600);
  const std::filesystem::path root = "checkpoint-benchmark";
  std::vector<float> values;
  const std::vector<CheckpointPiece> pieces = make_pieces(group, tensors, megabytes * 1e6, values);
  const auto report = [&](const char* what, Clock::time_point begin) {
    group.barrier();
    if (group.rank() == 0) fmt::print("{:28} {:7.3f} s\n", what, seconds_since(begin));
  };
  const auto begin_write = Clock::now();
  auto begin_phase = begin_write;
  std::string phase;
  const auto probe = [&](std::string_view now) {
    if (group.rank() == 0 && !phase.empty()) fmt::print("  {:26} {:7.3f} s\n", phase, seconds_since(begin_phase));
    phase = now;
    begin_phase = Clock::now();
  };
  write_checkpoint(group, root, {.run_uuid = "u", .step = 1, .mesh = "", .config = "", .trainer_state = "{}"}, pieces,
                   probe);
  report("write", begin_write);
  const auto begin_choose = Clock::now();
  const auto path = choose_checkpoint(group, root, "auto", [](const std::string& text) { fmt::print("{}\n", text); });
  report("choose (verifies)", begin_choose);
  const auto begin_read = Clock::now();
  const CheckpointReader reader(path.value());
  std::vector<float> out(values.size());
  for (const CheckpointPiece& piece : pieces) reader.read(piece.name, piece.box, out.data());
  report("read own", begin_read);
  const auto begin_others = Clock::now();
  const CheckpointReader again(path.value());
  for (const CheckpointReader::Entry& entry : again.tensors())
    again.read(entry.name, Box::whole(entry.shape), out.data());
  report("read all, every rank", begin_others);
  if (group.rank() == 0) std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace lyceum

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  lyceum::measure(argc > 1 ? std::atoll(argv[1]) : 4500, argc > 2 ? std::atof(argv[2]) : 300);
  MPI_Finalize();
}
