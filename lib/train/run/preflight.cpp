#include "train/run/preflight.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "config/value_text.h"
#include "core/error.h"
#include "parallel/comm/sequences.h"
#include "parallel/comm/verdict.h"
#include "plan/mesh_rank.h"
#include "train/step/live_placement.h"
#include "train/step/step.h"

namespace lyceum {

namespace {

/// Rehearses a step on the mesh of `world`, a rehearsal. See rehearse_step().
StepRehearsal rehearse(ProcessGroup world, const Config& config, const TokenLoader& loader, std::int64_t step) {
  RunSetup setup{.stream = RehearsalStream(), .mesh = Mesh::create(std::move(world), mesh_shape(config.parallel))};
  StagedModel model(config, setup.stream, setup.mesh, working_type(config.run), true);
  Zero zero(model.units(), setup.mesh, setup.stream, zero_options(config, setup.mesh));
  Optimizer optimizer(config.optim, setup.mesh, setup.stream, zero.shares(),
                      {.watched = config.run.audit_every > 0, .seed = config.run.seed});
  TrainStep train_step(config, setup, model, zero, optimizer);
  std::optional<LivePlacement> live;
  if (config.parallel.replace_every > 0) live.emplace(config, setup, model, zero, optimizer);
  std::vector<LedgerEntry> operations;
  Ledger& ledger = setup.mesh.world.ledger();
  ledger.listen([&](const LedgerEntry& entry) { operations.push_back(entry); });
  const std::int64_t sent_before = setup.mesh.world.sent_messages();
  train_step.run(loader, step, 0, config.optim.lr);
  if (is_due(step + 1, config.parallel.replace_every)) live->rehearse();
  ledger.listen({});
  const std::int64_t messages = setup.mesh.world.sent_messages() - sent_before;
  return {.operations = std::move(operations), .messages = messages, .mesh = std::move(setup.mesh)};
}

}  // namespace

StepRehearsal rehearse_step(const Config& config, const TokenLoader& loader, int rank, int ranks, std::int64_t step) {
  return rehearse(ProcessGroup::rehearsal(rank, ranks), config, loader, step);
}

std::int64_t messages_of_step(const Config& config, const TokenLoader& loader, int rank, int ranks) {
  return rehearse(ProcessGroup::rehearsal(rank, ranks, true), config, loader, 0).messages;
}

namespace {

/// Returns the settings of an INI text, one "parallel.zero = 1" per key.
std::vector<std::string> settings(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> all;
  std::string section;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with('[')) {
      section = line.substr(1, line.find(']') - 1) + ".";
    } else if (!line.empty()) {
      all.push_back(section + line);
    }
  }
  return all;
}

}  // namespace

void require_same_config(const ProcessGroup& world, const std::string& text) {
  const std::vector<std::string> expected = settings(world.broadcast(text, 0)), own = settings(text);
  const auto other = std::ranges::mismatch(expected, own);
  const std::string mine = other.in2 == own.end() ? "" : *other.in2;
  const std::string theirs = other.in1 == expected.end() ? "" : *other.in1;
  std::int64_t differs = mine == theirs ? 0 : 1;
  world.all_reduce(std::span(&differs, 1), Reduction::max);
  if (!differs) return;
  const std::vector<std::string> differences =
      world.all_gather(mine == theirs ? "" : value_text(mine) + ", rank 0 has " + value_text(theirs));
  for (std::size_t rank = 0; rank < differences.size(); ++rank) {
    require_usage(differences[rank].empty(), "rank {} has {}: start every rank with the same file and command line",
                  rank, differences[rank]);
  }
}

void require_one_program(const ProcessGroup& world, const std::string& program) {
  const std::string first = world.broadcast(program, 0);
  std::int64_t differs = program == first ? 0 : 1;
  world.all_reduce(std::span(&differs, 1), Reduction::max);
  if (!differs) return;
  std::map<std::string, std::vector<int>> others;  // ranks by program
  const std::vector<std::string> programs = world.all_gather(program);
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    if (programs[rank] != first) others[programs[rank]].push_back(static_cast<int>(rank));
  }
  std::string text;
  for (const auto& [other, ranks] : others) {
    text += fmt::format("{} {} {} lyceum {}; ", ranks.size() == 1 ? "rank" : "ranks", rank_ranges(ranks),
                        ranks.size() == 1 ? "runs" : "run", other);
  }
  fail(ExitCode::usage, "{}rank 0 runs lyceum {}: start every rank with the same build", text, first);
}

void require_matching_steps(const Config& config, const ProcessGroup& world, const TokenLoader& loader) {
  if (world.size() == 1) return;
  const auto require_step = [&](std::int64_t step) {
    require_matching(world, rehearse_step(config, loader, world.rank(), world.size(), step).operations);
  };
  require_step(0);
  const std::int64_t audited = config.run.audit_every, twice = config.run.replay_every;
  if (audited > 1 || twice > 1) require_step(std::max<std::int64_t>(1, audited) * std::max<std::int64_t>(1, twice) - 1);
  if (config.parallel.replace_every > 1) require_step(config.parallel.replace_every - 1);
}

}  // namespace lyceum
