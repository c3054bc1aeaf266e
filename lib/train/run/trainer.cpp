#include "train/run/trainer.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <source_location>
#include <span>
#include <utility>

#include "config/check.h"
#include "config/consistency.h"
#include "config/doubts.h"
#include "core/allocator.h"
#include "core/clock.h"
#include "core/heap.h"
#include "io/data/tokens/unigram_entropy.h"
#include "io/files/atomic_file.h"
#include "io/run/batch_job.h"
#include "model/routing/dead_experts.h"
#include "model/routing/expert_placements.h"
#include "optim/checkpoint.h"
#include "parallel/comm/shared_work.h"
#include "train/eval/evaluator.h"
#include "train/run/preflight.h"
#include "train/run/run_peak.h"
#include "train/run/stop_request.h"
#include "train/step/schedule.h"

namespace lyceum {

namespace {

namespace fs = std::filesystem;

/// The number of consecutive skipped steps at which the run fails: it will not recover.
constexpr std::int64_t max_consecutive_skips = 50;
/// Host memory for the buffers of a save, in bytes.
constexpr std::size_t save_bytes = std::size_t{64} << 20;
/// The largest number of skipped steps at the end of a run for which the run succeeds.
constexpr std::int64_t max_skips_at_end = 1;

/// Returns the text of a configuration after require_same_config().
std::string text_of_all_ranks(std::string config_text, const ProcessGroup& world) {
  require_same_config(world, config_text);
  return config_text;
}

}  // namespace

Trainer::Trainer(const Config& config, std::string config_text, const RunSetup& setup, std::ostream& out,
                 Options options)
    : run_config_(config),
      config_(config_of_stage(config, 1)),
      config_text_(text_of_all_ranks(std::move(config_text), setup.mesh.world)),
      setup_(setup),
      options_(std::move(options)),
      report_(config_, setup, out),
      starting_point_(std::in_place, config, setup, report_),
      data_(data_from_start()),
      model_(config_, setup.stream, setup.mesh, working_type(config.run), true, starting_point_->expert_load()),
      zero_(model_.units(), setup.mesh, setup.stream, zero_options(config_, setup.mesh)),
      optimizer_(config_.optim, setup.mesh, setup.stream, zero_.shares(),
                 {.watched = config.run.audit_every > 0, .seed = config.run.seed}),
      logs_(config_, setup, report_),
      trace_(config_, setup, report_),
      save_timer_(config.checkpoint.minutes, options_.now) {
  if (config_.parallel.replace_every > 0) live_placement_.emplace(config_, setup, model_, zero_, optimizer_);
  set_stage(starting_point_->stage());
  if (!options_.given) return;
  work_on_files_of_rank_zero(setup.mesh.world, [&] { config_file_.emplace(*options_.given, config, setup.program); });
}

/// Collective. Makes the stage of the starting point the present one. Returns its data and those of later stages.
std::vector<RunData> Trainer::data_from_start() {
  const int stage = starting_point_->stage();
  if (stage < setup_.first_stage) require_none(problems_of_stages(stage, setup_.first_stage));
  config_ = config_of_stage(run_config_, stage);
  std::vector<RunData> data;
  open_stages(stage, data);
  starting_point_->compare(data);
  return data;
}

ExitCode Trainer::run() {
  start();
  if (stop_requested_and_saved()) return ExitCode::resubmit;
  if (state_.step >= config_.run.steps) {
    report_.nothing_to_train(state_.step);
    validate();
    report_entropy();
    return final_exit_code();
  }
  while (state_.step < config_.run.steps) {
    begin_next_stage();
    make_step();
    if (roll_back_if_unsound()) continue;
    const bool last = state_.step == config_.run.steps;
    if (is_due(state_.step, config_.routing.every)) {
      state_.sum_routing(config_, setup_.mesh);
      logs_.routing(state_);
    }
    if (is_due(state_.step, config_.parallel.replace_every)) replace_experts();
    if (last || is_due(state_.step, config_.eval.every)) validate();
    if (last) report_entropy();
    logs_.end_step();
    if (last || is_due(state_.step, config_.checkpoint.every)) {
      save({.in_background = !last && config_.checkpoint.background});
    }
    if (!last && stop_requested_and_saved()) return ExitCode::resubmit;
  }
  trace_.finish();
  logs_.finish(state_);
  return final_exit_code();
}

void Trainer::start() {
  peak_ = peak_of_run(config_.run, setup_, options_.remeasure);
  throughput_.emplace(config_, peak_);
  // After the peak was measured, so that the products of the measurement are not among the choices.
  gemms_.emplace(config_.run, setup_, fs::path(config_.run.dir) / "gemm.json");
  const std::int64_t stage_steps = last_step_of(run_config_, stage_) - first_step_of(run_config_, stage_) + 1;
  report_.introduce(options_.lock, data(), stage_steps, peak_, *gemms_);
  report_.stages(run_config_);
  auto [placement, recorded] = first_placement();
  state_ = starting_point_->start({.zero = zero_, .optimizer = optimizer_, .gemms = *gemms_});
  state_.placement = std::move(placement);
  state_.stage = stage_count(run_config_) > 1 ? stage_ : 0;
  begin_data();
  first_step_ = new_shapes_ = state_.step;
  transformers_ = starting_point_->transformers();
  if (starting_point_->is_checkpoint()) saved_step_ = state_.step;
  starting_point_->complete_interrupted_save();
  starting_point_.reset();
  report_.placement(state_, recorded);
  trace_.introduce(state_.step);
  open_logs();
  if (state_.step < config_.run.steps) {
    for (const std::string& doubt : schedule_warnings_of_stages(run_config_, state_.step, state_.schedule_steps)) {
      report_.warn(doubt);
    }
    if (options_.given) {
      for (const std::string& doubt : doubts(*options_.given, run_config_)) report_.warn(doubt);
      work_on_files_of_rank_zero(setup_.mesh.world, [&] {
        report_.attempt([&] {
          if (const std::string news = config_file_->write(); !news.empty()) report_.note(news);
        });
      });
    }
  }
  if (config_.checkpoint.at_start && state_.step == 0) save({});
  return_unused_heap();  // what the start has freed
  save_timer_.restart();
}

void Trainer::open_logs() {
  work_on_files_of_rank_zero(setup_.mesh.world, [&] {
    make_directories(checkpoint_root(config_.run));  // first: if it fails, the logs of an earlier run are not cut
    logs_.open(state_, config_text_);
  });
}

void Trainer::make_step() {
  trace_.before_step(state_.step + 1);
  const auto start = Clock::now();
  const bool timed_before = state_.step == new_shapes_ + 1 && config_.run.gemm_choice == GemmChoiceMethod::timed;
  if (timed_before) memory_of(setup_.stream).reset_peaks();  // timing used additional memory
  const double lr = learning_rate(config_.optim, state_.step - schedule_.begin, state_.schedule_steps);
  const StepLimits limits = state_.recent.limits(config_.optim);
  StepResult result = train_step_->run(*loader_, state_.step, state_.samples, lr, limits);
  measure_ranks(result);
  update_state(result);
  if (options_.lock) options_.lock->require_held();
  if (state_.step == new_shapes_ + 1) agree_on_gemms();
  if (result.skipped) report_.left_out(result, limits, state_.step);
  end_endless_skips();
  const double seconds = seconds_since(start);
  trace_.after_step();
  logs_.step(result, state_, *throughput_, seconds);
  report_.step(result, state_, *throughput_, seconds);
}

/// Throws an Error after max_consecutive_skips steps without an update.
void Trainer::end_endless_skips() const {
  const std::int64_t not_finite = state_.skipped_in_a_row, outliers = state_.outliers_in_a_row;
  if (not_finite + outliers < max_consecutive_skips) return;
  require(outliers > 0, "{} consecutive steps were not finite: resume from an earlier checkpoint with a lower optim.lr",
          not_finite);
  fail(ExitCode::failed,
       "{} consecutive steps were skipped, {} of them by optim.skip_above = {}: the loss or the gradient norm does not "
       "return to what it was; raise optim.skip_above, or resume from an earlier checkpoint with a lower optim.lr",
       not_finite + outliers, outliers, config_.optim.skip_above);
}

/// Updates the state of the run by the results of a step.
void Trainer::update_state(const StepResult& result) {
  ++state_.step;
  state_.samples += samples_per_step(config_);
  state_.updates = optimizer_.updates();
  if (result.skipped) {
    ++state_.skipped;
    if (result.outlier) {
      ++state_.outliers;
      ++state_.outliers_in_a_row;
    } else if (result.targets > 0) {  // a step without targets is skipped for a good reason
      ++state_.skipped_in_a_row;
      state_.soundness.add_skipped();
    }
    return;  // the routing sums may not be finite, and an outlier's are not those of the run
  }
  state_.skipped_in_a_row = state_.outliers_in_a_row = 0;
  state_.recent.add(result.loss, result.grad_norm, config_.optim);
  state_.soundness.add(result.loss, result.update_norm, result.weight_norm);
  state_.add_load(result.loads);
  if (config_.routing.every > 0) {
    state_.add_routing(result.routing, result.loads, config_.batch.global * config_.batch.seq_len, result.replica_sums);
  }
  add_step(state_.idle, result.loads);
}

/// Collective. Returns to the newest sound checkpoint if the run has been unsound for Soundness::window steps and
/// run.rollback allows another rollback. The run then skips the data since that checkpoint. Returns true if it did.
bool Trainer::roll_back_if_unsound() {
  if (state_.rollbacks >= config_.run.rollback) return false;
  const std::string problem = state_.problem();
  // Ranks agree, since the norms in problem() differ between ranks if copies of weights differ.
  std::array<std::int64_t, 1> unsound{problem.empty() ? 0 : 1};
  setup_.mesh.world.all_reduce(std::span(unsound), Reduction::max);
  unsound_steps_ = unsound[0] == 0 ? 0 : unsound_steps_ + 1;
  if (unsound_steps_ != Soundness::window) return false;
  finish_save();
  trace_.finish();
  train_step_->release_memory();
  StartingPoint point(run_config_, setup_, report_, StartingPoint::Choice::sound);
  if (!point.is_checkpoint()) {
    report_.warn(fmt::format("step {}: {}, and there is no sound checkpoint to return to", state_.step, problem));
    return false;
  }
  if (point.stage() < first_open_) {
    const std::vector<std::string> wrong = problems_of_stages(point.stage(), first_open_);
    if (!wrong.empty()) {
      report_.warn(
          fmt::format("step {}: {}, and the newest sound checkpoint is one of stage {}, which is impossible "
                      "on these ranks: {}",
                      state_.step, problem, point.stage(), wrong.front()));
      return false;
    }
    open_stages(point.stage(), data_);
  }
  point.compare(data_);
  unsound_steps_ = 0;
  const RunState before =
      std::exchange(state_, point.start({.zero = zero_, .optimizer = optimizer_, .gemms = *gemms_}));
  state_.samples = before.samples;
  state_.rollbacks = before.rollbacks + 1;
  state_.placement = before.placement;
  state_.data_begin = before.data_begin;
  state_.data = before.data;
  state_.stage = before.stage;
  if (point.stage() != stage_) return_to_stage(point.stage());
  first_step_ = new_shapes_ = state_.step;
  saved_step_ = -1;  // checkpoints of later steps no longer belong to this run
  report_.warn(fmt::format(
      "after step {}, {}: the run returned to step {} and skips the data of the {} steps since then (rollback {} of "
      "{})",
      before.step, problem, state_.step, before.step - state_.step, state_.rollbacks, config_.run.rollback));
  open_logs();
  save({});  // with this checkpoint a later start skips the same data
  return true;
}

void Trainer::validate() {
  if (data().valid.empty()) return;
  const auto start = Clock::now();
  train_step_->release_memory();
  const SourcesEvaluation evaluation = evaluate(model_, setup_, config_, data().valid, config_.eval.batches);
  last_valid_loss_ = evaluation.whole.loss;
  logs_.validation(evaluation, data().valid);
  report_.validation(evaluation, data(), state_, seconds_since(start));
}

void Trainer::report_entropy() {
  const std::optional<Range> tokens = data().valid_tokens();
  if (!report_.prints() || !tokens) return;
  const double entropy = unigram_entropy(data().valid.front().token_source(), tokens->first, tokens->count);
  report_.entropy(entropy, tokens->count, last_valid_loss_);
  logs_.entropy(entropy);
}

/// Collective. Makes all ranks use the same GEMM algorithms, and stores them, so that a run that resumes from the next
/// checkpoint uses them, too.
void Trainer::agree_on_gemms() {
  if (const std::string news = gemms_->agree(); !news.empty()) report_.note(news);
  report_.attempt(gemm_file_failing_, [&] { gemms_->save(); });
}

void Trainer::save(SaveOptions options) {
  finish_save();
  if (options_.lock) options_.lock->require_held(true);
  train_step_->audit(state_.step);
  agree_on_gemms();
  state_.sum_routing(config_, setup_.mesh);
  const auto begun = Clock::now();
  memory_of(setup_.stream).shrink_pool(save_bytes);  // activations are free now
  work_on_files_of_rank_zero(setup_.mesh.world, [&] { logs_.sync(); });
  const fs::path root = checkpoint_root(config_.run);
  const ProcessGroup& world = setup_.mesh.world;
  Save save{.header = {.run_uuid = state_.run_uuid,
                       .step = state_.step,
                       .mesh = setup_.mesh.shape.text(world.size()),
                       .config = config_text_,
                       .trainer_state = state_.text(),
                       .job = batch_job(),
                       .unsound = state_.problem(),
                       .timed = options.timed,
                       .tokenizer = data().tokenizer,
                       .transformers = transformers_},
            .begun = begun,
            .waiting_since = begun};
  // Memory may be damaged after the audit, while the checkpoint reads it. Then the checkpoint is not saved.
  const CheckpointProbe undamaged = [&](std::string_view phase) {
    if (phase == "read") train_step_->require_undamaged();
  };
  attempt_save([&] {
    if (options.in_background) {
      BackgroundCheckpoint checkpoint(world, root, save.header, checkpoint_slices(optimizer_), undamaged);
      save.waited = seconds_since(begun);
      background_save_.emplace(std::move(save), std::move(checkpoint));
    } else {
      after_publishing(save, write_checkpoint(world, root, save.header, checkpoint_slices(optimizer_), undamaged));
    }
  });
  save_timer_.restart();  // also if the save failed: otherwise each step would try again
}

void Trainer::finish_save() {
  std::optional<BackgroundSave> ending = std::exchange(background_save_, std::nullopt);
  if (!ending) return;
  if (options_.lock) options_.lock->require_held(true);
  ending->save.waiting_since = Clock::now();
  attempt_save([&] { after_publishing(ending->save, ending->checkpoint.publish()); });
}

void Trainer::attempt_save(const std::function<void()>& part) {
  try {
    part();
  } catch (const CheckpointNotSaved& error) {  // on all ranks
    not_saved_ = error.what();
    report_.warn(not_saved_);
    train_step_->audit(state_.step);  // ends the run if damaged memory was the reason
  }
}

void Trainer::after_publishing(const Save& save, const std::string& complaint) {
  saved_step_ = save.header.step;
  const fs::path root = checkpoint_root(config_.run);
  if (!complaint.empty()) report_.warn(complaint);
  work_on_files_of_rank_zero(setup_.mesh.world, [&] {
    if (config_file_) report_.attempt([&] { config_file_->checkpoint_saved(); });  // first, since pruning may take long
    if (complaint.empty()) report_.attempt([&] { prune_checkpoints(root, config_.checkpoint.keep); });
  });
  report_.saved(root.string(), save.header.step, seconds_since(save.begun),
                save.waited + seconds_since(save.waiting_since), save.header.unsound);
}

bool Trainer::stop_requested_and_saved() {
  const bool writing = background_save_ && !background_save_->checkpoint.written();
  const bool due = setup_.mesh.world.rank() == 0 && !background_save_ && save_timer_.is_due();  // by rank 0's clock
  std::array<std::int64_t, 3> of_any_rank{stop_requested() ? 1 : 0, writing ? 1 : 0, due ? 1 : 0};
  setup_.mesh.world.all_reduce(std::span(of_any_rank), Reduction::max);
  const auto [asked, still_writing, save_due] = of_any_rank;
  if (asked || !still_writing) finish_save();
  if (!asked) {
    if (save_due && saved_step_ != state_.step) {
      save({.in_background = config_.checkpoint.background, .timed = true});
    }
    return false;
  }
  if (state_.step > 0 && saved_step_ != state_.step) {
    save({});
    if (saved_step_ != state_.step) {
      throw CheckpointNotSaved(ExitCode::failed, "stopped on request, but " + not_saved_,
                               std::source_location::current());
    }
  }
  trace_.finish();  // after the checkpoint, since the time until a kill may be short
  logs_.finish(state_);
  report_.stopped(state_.step);
  return true;
}

ExitCode Trainer::final_exit_code() const {
  require_input(state_.step == 0 || state_.updates > 0,
                "all {} steps were skipped, since no token of their batches counts in the loss: the weights "
                "are unchanged; train on data with more trained tokens",
                state_.step);
  if (saved_step_ != state_.step) {
    const bool resumes = saved_step_ >= 0 || first_step_ > 0;
    throw CheckpointNotSaved(ExitCode::failed,
                             fmt::format("{}: remove the cause, then run the same command, which {}", not_saved_,
                                         resumes ? "resumes from the previous checkpoint" : "starts again"),
                             std::source_location::current());
  }
  require(state_.skipped_in_a_row <= max_skips_at_end,
          "the last {} steps were skipped, so the run ends without a result: lower optim.lr and run the command again, "
          "which resumes from the newest sound checkpoint; if there is none, set another run.dir",
          state_.skipped_in_a_row);
  require(
      state_.outliers_in_a_row < Soundness::window,
      "the last {} steps were skipped by optim.skip_above = {}, so the run ends without a result: raise it, or lower "
      "optim.lr, and run the command again, which resumes from the newest sound checkpoint; if there is none, set "
      "another run.dir",
      state_.outliers_in_a_row, config_.optim.skip_above);
  return ExitCode::done;
}

}  // namespace lyceum
