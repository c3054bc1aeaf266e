// Finds the checkpoint from which a run would resume. Usage: checkpoint_states <FOLDERS
//
// Reads paths of folders of checkpoints from standard input, one per line. In each it does what a start of a run does:
//   1. repairs the folder,
//   2. chooses a checkpoint as `checkpoint.resume = auto` does,
//   3. points LATEST at it,
//   4. removes old checkpoints as checkpoint.keep = 1 does.
// Answers each line with one line: the name of the checkpoint, "none", or "error: " and the reason.
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>

#include "io/checkpoint/checkpoint.h"
#include "parallel/comm/mpi_session.h"
#include "parallel/comm/process_group.h"

namespace {

using namespace lyceum;

std::string start_in(const ProcessGroup& alone, const std::filesystem::path& root) {
  repair_checkpoints(root);
  const auto chosen = choose_checkpoint(alone, root, "auto", {});
  if (!chosen) return "none";
  const std::string name = chosen->directory().filename().string();
  set_latest(root, name);
  prune_checkpoints(root, 1);
  return name;
}

}  // namespace

int main() {
  const MpiSession session;
  const ProcessGroup alone = ProcessGroup::self();
  for (std::string root; std::getline(std::cin, root);) {
    std::string answer;
    try {
      answer = start_in(alone, root);
    } catch (const std::exception& error) {
      answer = std::string("error: ") + error.what();
    }
    std::cout << answer << std::endl;
  }
}
