// Which checkpoint would a run go on from? Usage: checkpoint_states <FOLDERS
//
// Reads paths of folders of checkpoints, one a line, and treats each as a start of a run does: mends it, chooses by
// `checkpoint.resume = auto`, makes LATEST name that one and removes what checkpoint.keep = 1 does not keep. Answers
// with a line each: the name of the checkpoint, "none", or "error: " and why.
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
  mend_checkpoints(root);
  const auto chosen = choose_checkpoint(alone, root, "auto", {});
  if (!chosen) return "none";
  const std::string name = chosen->filename().string();
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
