#include "train/run/starting_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <span>
#include <utility>

#include "config/binding.h"
#include "config/check.h"
#include "core/error.h"
#include "io/checkpoint/manifest.h"
#include "io/data/tokens/data_sources.h"
#include "io/text/table.h"
#include "model/routing/routing_statistics.h"
#include "optim/checkpoint.h"
#include "parallel/comm/shared_work.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;

/// Returns the resolved configuration of a checkpoint's run.
Config config_before(const CheckpointHeader& header) {
  Config config = parse_config_leniently(header.config);
  resolve(config, 1);
  return config;
}

}  // namespace

std::string new_run_uuid(const ProcessGroup& world) {
  std::string uuid;
  if (world.rank() == 0) {
    std::random_device device;
    const auto word = [&] { return static_cast<std::uint32_t>(device()); };
    uuid = fmt::format("{:08x}-{:04x}-4{:03x}-{:04x}-{:08x}{:04x}", word(), word() & 0xffff, word() & 0xfff,
                       (word() & 0x3fff) | 0x8000, word(), word() & 0xffff);
  }
  return world.broadcast(uuid, 0);
}

fs::path checkpoint_root(const RunConfig& run) { return fs::path(run.dir) / "checkpoints"; }

int presumed_stage(const Config& config, const ProcessGroup& world) {
  const std::string& resume = config.checkpoint.resume;
  if (stage_count(config) == 1) return 1;
  std::int64_t step = 0;
  work_on_files_of_rank_zero(world, [&] {
    if (resume == "none") return;
    const fs::path root = checkpoint_root(config.run);
    std::vector<fs::path> candidates;
    try {
      if (resume != "auto") {
        candidates.push_back(resolve_checkpoint(resume));
      } else {
        for (const std::string& name : list_checkpoints(root)) candidates.push_back(root / name);
      }
    } catch (const Error&) {  // StartingPoint reports it
    }
    std::int64_t unsound = 0;
    for (const fs::path& path : candidates) {
      try {
        const CheckpointHeader header = read_manifest_head(path).header;
        if (header.unsound.empty() || resume != "auto") {
          step = header.step;
          return;
        }
        unsound = std::max(unsound, header.step);
      } catch (const Error&) {  // damaged: an older one is chosen
      }
    }
    step = unsound;
  });
  return stage_of_step(config, std::stoll(world.broadcast(std::to_string(step), 0)));
}

StartingPoint::StartingPoint(const Config& config, const RunSetup& setup, RunReport& report, Choice choice)
    : run_config_(config),
      setup_(setup),
      report_(report),
      choice_(choice),
      resume_(choice == Choice::sound ? "auto" : config.checkpoint.resume),
      root_(checkpoint_root(config.run)) {
  const ProcessGroup& world = setup.mesh.world;
  work_on_files_of_rank_zero(world, [&] { repair_checkpoints(root_); });
  const auto warn = [&](const std::string& warning) { report.warn(warning); };
  checkpoint_ = choose_checkpoint(world, root_, resume_, warn, choice == Choice::sound);
  stage_ = checkpoint_ ? stage_of_step(run_config_, checkpoint_->header().step) : 1;
  config_ = config_of_stage(run_config_, stage_);
}

namespace {

/// Adds `file` unless one with its key and prefix is there.
void add_once(std::vector<DataIdentity>& all, const DataIdentity& file) {
  const auto same = [&](const DataIdentity& one) { return one.key == file.key && one.prefix == file.prefix; };
  if (!file.fingerprint.empty() && std::ranges::none_of(all, same)) all.push_back(file);
}

}  // namespace

void StartingPoint::compare(std::span<const RunData> data) {
  data_ = &data[static_cast<std::size_t>(stage_) - 1];
  files_ = data_->files;
  for (const RunData& stage : data.subspan(static_cast<std::size_t>(stage_) - 1)) {
    for (const DataIdentity& file : stage.files) add_once(later_files_, file);
  }
  if (!checkpoint_) return;
  inspect_checkpoint_folder();
  const CheckpointHeader& header = checkpoint_->header();
  run_before_ = config_before(header);
  before_ = config_of_stage(run_before_, stage_of_step(run_before_, header.step));
  for (const DataIdentity& file : RunState::data_of(header.trainer_state)) add_once(read_files_, file);
  for (const SourceProgress& source : RunState::data_begin_of(header.trainer_state).sources) {
    add_once(read_files_, {.key = "data.train", .prefix = source.prefix, .fingerprint = source.fingerprint});
  }
  rename_present_data();
  changes_ = changes(before_, config_);
  if (choice_ == Choice::sound) return;  // chosen among the checkpoints of this run itself
  require_same_adapters();
  require_same_run();
  require_same_model();
}

/// Sets renamed_, and the data of before_ to those of config_ if they are the same under other prefixes.
void StartingPoint::rename_present_data() {
  for (const auto& [key, member] :
       {std::pair("data.train", &DataConfig::train), std::pair("data.valid", &DataConfig::valid)}) {
    std::string& before = before_.data.*member;
    const std::string& now = config_.data.*member;
    if (before == now || !same_sources(key, before, now, read_files_, files_)) continue;
    if (member == &DataConfig::train) {
      const std::vector<DataSource> old_sources = data_sources(key, before), sources = data_sources(key, now);
      for (std::size_t s = 0; s < sources.size(); ++s) renamed_.emplace_back(old_sources[s].prefix, sources[s].prefix);
    }
    before = now;
  }
}

/// Collective. Sets in_run_folder_, newest_ and newest_run_ to what rank 0 finds in the folder of checkpoints.
void StartingPoint::inspect_checkpoint_folder() {
  std::string own, newest, newest_run;
  work_on_files_of_rank_zero(setup_.mesh.world, [&] {
    std::error_code absent;
    const std::string name = checkpoint_name(checkpoint_->header().step);
    if (fs::equivalent(checkpoint_->directory(), root_ / name, absent)) own = name;
    const std::vector<std::string> present = list_checkpoints(root_);
    if (!present.empty()) newest = present.front();
    for (auto at = present.begin(); at != present.end() && newest_run.empty(); ++at) {
      try {
        newest_run = read_manifest_head(root_ / *at).header.run_uuid;
      } catch (const Error&) {  // damaged: read the uuid from an older checkpoint
      }
    }
  });
  const ProcessGroup& world = setup_.mesh.world;
  in_run_folder_ = !world.broadcast(own, 0).empty();
  newest_ = world.broadcast(newest, 0);
  newest_run_ = world.broadcast(newest_run, 0);
}

std::vector<ExpertLoad> StartingPoint::expert_load() const {
  if (!checkpoint_) return {};
  return RunState::load_of(checkpoint_->header().trainer_state);
}

std::vector<MixturePlacement> StartingPoint::expert_placement() const {
  if (!checkpoint_ || before_.parallel.placement != config_.parallel.placement) return {};
  return RunState::placement_of(checkpoint_->header().trainer_state);
}

RunState StartingPoint::start(const Parts& parts) const {
  RunState state;
  checkpoint_ ? resume(state, parts) : start_new_run(state, parts);
  return state;
}

void StartingPoint::start_new_run(RunState& state, const Parts& parts) const {
  // A new run next to old checkpoints would mix two runs: the next start would resume from the newest of all.
  require_input(list_checkpoints(root_).empty(),
                resume_ == "none"
                    ? "{} contains checkpoints of an earlier run: set another run.dir, or checkpoint.resume=auto"
                    : "no checkpoint in {} is intact: repair or move them, or set another run.dir",
                root_.string());
  state.run_uuid = new_run_uuid(setup_.mesh.world);
  state.schedule_steps = schedule_of_stage(run_config_, 1).steps;
  parts.zero.initialize(config_.run.seed);
  parts.optimizer.adopt_weights();
}

void StartingPoint::resume(RunState& state, const Parts& parts) const {
  const CheckpointReader& reader = *checkpoint_;
  const CheckpointHeader& header = reader.header();
  const std::string directory = reader.directory().string();
  require_input(resume_ == "auto" || newest_ <= checkpoint_name(header.step),
                "{} contains {}, which is newer than the checkpoint to resume from: {}set another run.dir, or move the "
                "newer ones away",
                root_.string(), newest_,
                newest_run_ == header.run_uuid ? "set checkpoint.resume = auto to continue from it, " : "");
  const bool same_data = compare_data();
  require_input(!reader.has_optimizer_state() || before_.optim.train_only == config_.optim.train_only,
                "optim.train_only differs from that of {}: start a new run from its weights with lyceum convert reset",
                directory);
  draw_missing_adapters(parts.optimizer, reader, config_.run.seed);
  parts.zero.await_values();  // in a rollback, values of the last step may still be in flight
  const std::atomic<std::int64_t> progress = 0;
  SharedWork reading(setup_.mesh.world, progress);
  load_checkpoint(parts.optimizer, reader, [&](const auto& read) { reading.run(read); });
  reading.finish();
  parts.zero.values_changed();
  state.restore(header.trainer_state, no_routing(config_));
  state.data = RunState::data_of(header.trainer_state);
  state.run_uuid = header.run_uuid;
  state.step = header.step;
  for (const auto& [before, now] : renamed_) {
    for (SourceProgress& source : state.data_begin.sources) {
      if (source.prefix == before) source.prefix = now;
    }
  }
  parts.optimizer.set_updates(state.updates);
  report_.note(fmt::format("resumed    {} (mesh {})", directory, header.mesh));
  if (!reader.has_optimizer_state()) report_.note("optimizer  new: the checkpoint contains only weights");
  std::string zero;
  for (const auto& [name, tensors] : states_of_other_rules(config_, reader)) {
    zero += fmt::format("{}{} of {}", zero.empty() ? "" : ", ", name, count_text(tensors, "tensor"));
  }
  if (!zero.empty()) report_.note("optimizer  starts at zero: " + zero + "; the checkpoint has states of another rule");
  const auto is_average = [](const CheckpointReader::Entry& entry) { return entry.name.starts_with(average_prefix); };
  if (config_.optim.ema > 0 && std::ranges::none_of(reader.tensors(), is_average)) {
    report_.note("average    starts from the weights: the checkpoint has none");
  }
  if (config_.optim.lora_rank > 0 && !reader.has_adapters()) {
    report_.note("adapters   new: the checkpoint has none");
  }
  if (parts.gemms.nothing_pinned()) {
    report_.warn(fmt::format(
        "no GEMM algorithms for this GPU in {}: they are chosen again, so results may differ in the last bits",
        parts.gemms.file().string()));
  }
  if (resume_ != "auto" && !header.unsound.empty()) {
    report_.warn("this checkpoint is not sound: " + header.unsound);
    state.forget_losses();  // the user has named it, so the run may continue from it
  }
  if (!same_data) state.forget_losses();  // losses on other data are not comparable
  report_changes(state);
  choose_schedule_length(state);
  report_choices(state);
}

void StartingPoint::complete_interrupted_save() const {
  work_on_files_of_rank_zero(setup_.mesh.world, [&] {
    report_.attempt([&] {
      if (in_run_folder_) set_latest(root_, checkpoint_name(checkpoint_->header().step));
      prune_checkpoints(root_, config_.checkpoint.keep);
    });
  });
}

}  // namespace lyceum
