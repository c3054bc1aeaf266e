#include "train/setup/run_setup.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <utility>

#include "config/check.h"
#include "config/value_text.h"
#include "core/allocator.h"
#include "core/gpu.h"
#include "io/data/loader/packing.h"
#include "io/data/tokenizer/tokenizer.h"
#include "io/data/tokens/data_sources.h"
#include "io/data/tokens/token_formats.h"
#include "io/data/tokens/token_meta.h"
#include "io/files/sha256.h"
#include "io/files/whole_file.h"
#include "io/run/batch_job.h"
#include "io/text/json.h"
#include "io/text/table.h"
#include "model/adapters.h"
#include "model/model_tensors.h"
#include "optim/weight_rule.h"
#include "parallel/comm/gpu_assignment.h"
#include "parallel/comm/nccl_network.h"
#include "parallel/comm/shared_work.h"
#include "train/setup/machine.h"
#include "train/setup/samples.h"

namespace lyceum {

namespace {

/// Returns the bytes of job_memory() for one of the job's ranks on this machine.
double memory_of_rank(const MpiSession& session) { return job_memory() / session.local_size(); }

/// Returns what a message about a lack of memory says of the plan. Both numbers are bytes of the fullest rank.
std::string planned_note(double planned, double beside, int local_ranks) {
  const auto megabytes = [](double bytes) { return std::llround(bytes / 1e6); };
  return format_message("planned for each of the {} ranks here: at most {} MB, of which {} MB are not tensors; ",
                        {local_ranks, megabytes(planned), megabytes(beside)});
}

/// The GPU of a rank that has one.
struct RankGpu {
  int device;
  Transport transport;
  double memory;     // bytes: this rank's share of the GPU's memory
  std::string name;  // "NVIDIA H100 80GB HBM3"
  bool shared;       // other ranks use this GPU, too
};

/// Collective. Returns the GPU of this rank; empty if config.run.device is not `cuda`. Throws a usage Error if ranks
/// share a GPU and parallel.transport is `nccl`.
std::optional<RankGpu> gpu_of(const Config& config, const MpiSession& session, const ProcessGroup& world) {
  if constexpr (built_with_cuda) {
    if (config.run.device != DeviceKind::cuda) return {};
    const auto [device, shared] = assign_gpus(world);
    const TransportKind transport = config.parallel.transport;
    require_usage(transport != TransportKind::nccl || !shared,
                  "parallel.transport = nccl: ranks share GPU {} of {}, which NCCL does not support: start one rank "
                  "per GPU, or set parallel.transport = staged",
                  device, session.host());
    const GpuInfo info = gpu_info(device);
    const int sharers = (session.local_size() + gpu_count() - 1) / gpu_count();
    return RankGpu{.device = device,
                   .transport = transport == TransportKind::staged || shared ? Transport::staged : Transport::nccl,
                   .memory = static_cast<double>(info.memory) / sharers,
                   .name = info.name,
                   .shared = shared};
  }
  return {};
}

/// Collective. Returns the resources of all ranks, by rank. Throws a usage Error if NCCL would find no network
/// interface. Unless run.threads is set, the threads of a rank are the number of cores that it may use, divided by the
/// number of ranks on its machine with exactly these cores. This is right both if the launcher binds ranks to cores and
/// if it does not.
std::vector<RankResources> resources_of(const RunConfig& run, const MpiSession& session, const ProcessGroup& world,
                                        const std::optional<RankGpu>& gpu) {
  const CoreSet cores = own_cores();
  const std::string device =
      gpu ? fmt::format("cuda:{} {}{}", gpu->device, gpu->name, gpu->shared ? ", shared" : "") : "cpu";
  std::string network, problem;
  if (gpu && gpu->transport == Transport::nccl && world.size() > 1) {
    const NetworkDevices devices = network_devices();
    const NcclVariables variables = nccl_variables();
    network = text_of(devices_of_nccl(devices, variables));
    problem = nccl_network_problem(devices, variables);
  }
  const std::vector<std::string> texts = world.all_gather(json_text(nlohmann::json{
      session.host(), cores.text, cores.count, session.local_rank(), gpu ? gpu->memory : memory_of_rank(session),
      device, gpu ? gpu->name : cpu_name(), network, problem}));
  std::vector<RankResources> resources;
  std::map<std::pair<std::string, std::string>, int> sharing;
  for (const std::string& text : texts) {
    const auto json = parse_json<nlohmann::json>(text);
    require_usage(json[8] == "", "host {}: {}", json[0].get<std::string>(), json[8].get<std::string>());
    resources.push_back({.host = json[0],
                         .cores = json[1],
                         .local_rank = json[3],
                         .threads = json[2],
                         .memory = json[4],
                         .device = json[5],
                         .processor = json[6],
                         .network = json[7]});
    ++sharing[{resources.back().host, resources.back().cores}];
  }
  for (RankResources& each : resources) {
    each.threads = run.threads > 0 ? run.threads : std::max(1, each.threads / sharing[{each.host, each.cores}]);
  }
  return resources;
}

/// Throws a bad_input Error if none of the targets of samples [first, first + count) counts in the loss. `key`: the
/// configuration key that names the file, for the message.
void require_targets(const char* key, const TokenSamples& samples, std::int64_t first, std::int64_t count) {
  if (samples.any_target(first, count)) return;
  const TokenSource& tokens = samples.token_source();
  const std::string cause =
      tokens.has_mask()
          ? fmt::format(
                "{} excludes all tokens: tokenise again so that it marks tokens to train, or remove it to "
                "train all",
                mask_path(tokens.prefix()))
          : "data.document_mask excludes all tokens, since each document has only one";
  fail(ExitCode::bad_input, "{} = {}: no token of its {} counts in the loss: {}", key, tokens.prefix(),
       count_text(count, "sample"), cause);
}

/// Collective over the world. Makes the file of a source's packing, if it has one. Rank 0 makes it beside the token
/// files if it can. Then one rank of each machine opens it, or makes one for its machine if it cannot read that of rank
/// 0. So no rank waits for a file while it takes part in an operation with others.
void make_packing_file(const RunSetup& setup, const TokenSource& source, std::int64_t seq_len) {
  const ProcessGroup& world = setup.mesh.world;
  if (world.size() == 1) return;
  std::array<std::int64_t, 1> has_file{has_packing_file(source, seq_len) ? 1 : 0};
  world.all_reduce(std::span(has_file), Reduction::max);  // the token files of another machine may differ
  if (has_file[0] == 0) return;
  const auto rank = static_cast<std::size_t>(world.rank());
  const auto first = std::ranges::find(setup.resources, setup.resources[rank].host, &RankResources::host);
  const bool leads = first - setup.resources.begin() == world.rank();
  for (const bool makes : {rank == 0, leads && rank > 0}) {
    std::atomic<std::int64_t> progress = 0;
    SharedWork work(world, progress);
    if (makes) work.run([&] { open_packing(source, seq_len, {}, &progress); });
    work.finish();
  }
}

}  // namespace

std::unique_ptr<RunSetup> set_up(const Config& config, const MpiSession& session, std::optional<Reading> reading,
                                 int first_stage) {
  require_none(problems(config, session.size(), first_stage));
  if (!reading && !config.optim.train_only.empty())
    count_trained_values(config);  // throws for bad patterns before memory is allocated
  if (!reading) require_ruled_tensors(config);
  if (!reading) require_adaptable(config);
  const ProcessGroup host_world = session.world(config.run.timeout_seconds);
  const std::optional<RankGpu> gpu = gpu_of(config, session, host_world);
  std::vector<RankResources> resources = resources_of(config.run, session, host_world, gpu);
  double planned = 0, beside = 0;  // bytes of the fullest rank: all, and those beside its tensors
  for (int stage = first_stage; stage <= stage_count(config); ++stage) {
    Config own = config_of_stage(config, stage);
    if (gpu) own.parallel.transport = gpu->transport == Transport::nccl ? TransportKind::nccl : TransportKind::staged;
    const MeshPlan plan = reading ? plan_inference(own, session.size(), *reading) : plan_mesh(own, session.size(), {});
    require_fits(plan, gpu ? gpu->memory : memory_of_rank(session),
                 format_message("each of this machine's {} ranks", {session.local_size()}),
                 stage > 1 ? format_message("stage {}: ", {stage}) : "");
    if (session.rank() == 0 && gpu) {
      const double least = std::ranges::min_element(resources, {}, &RankResources::memory)->memory;
      const std::string warning = nccl_shortage(plan, least, "the smallest rank");
      if (!warning.empty()) fmt::print(stderr, "warning: {}\n", warning);
    }
    if (plan.peak_resident() <= planned) continue;
    planned = plan.peak_resident();
    beside = plan.fullest().memory.process + plan.fullest().memory.nccl;
  }
  const int threads = resources[static_cast<std::size_t>(host_world.rank())].threads;
  omp_set_num_threads(threads);  // of work on the host, such as drawing initial weights, also beside a GPU
  const Stream stream =
      gpu ? gpu_stream(gpu->device) : CpuStream(threads, Allocator::create_within(MemoryRoom(session.local_size())));
  memory_of(stream).set_note(planned_note(planned, beside, session.local_size()));
  host_world.set_checksums(config.parallel.checksums);
  ProcessGroup world = host_world.on(stream, gpu ? gpu->transport : Transport::mpi,
                                     {.order = config.parallel.nccl_order, .channels = config.parallel.nccl_channels});
  return std::make_unique<RunSetup>(RunSetup{.stream = stream,
                                             .mesh = Mesh::create(std::move(world), mesh_shape(config.parallel)),
                                             .resources = std::move(resources),
                                             .first_stage = first_stage});
}

std::unique_ptr<RunLock> lock_run_directory(const Config& config, const MpiSession& session) {
  // A batch script does not start the job again after a usage error. So a batch job waits longer for the previous job
  // in this folder to end.
  RunLock::Timing timing;
  if (batch_job()) timing.patience = std::chrono::seconds(30);
  const ProcessGroup world = session.world(config.run.timeout_seconds);
  std::unique_ptr<RunLock> lock;
  // It takes some seconds to find out that another job is dead. The other ranks must wait meanwhile.
  work_on_files_of_rank_zero(world, [&] { lock = std::make_unique<RunLock>(config.run.dir, timing); });
  return lock;
}

void require_one_tokenizer(std::string name, std::string digest, std::span<const std::string> prefixes) {
  for (const std::string& prefix : prefixes) {
    const std::optional<TokenMeta> meta = read_token_meta(prefix);
    if (!meta) continue;
    require_input(
        digest.empty() || meta->tokenizer_sha256 == digest,
        "{} was encoded with a different tokenizer than {}: {} names {} of SHA-256 {}…, this one has {}…; tokenise "
        "again, or, if no checkpoint contains a tokenizer, set data.tokenizer to the one that encoded these tokens",
        token_path(prefix), name, meta_path(prefix), meta->tokenizer, meta->tokenizer_sha256.substr(0, 12),
        digest.substr(0, 12));
    if (digest.empty()) name = token_path(prefix);
    digest = meta->tokenizer_sha256;
  }
}

RunData open_data(const Config& config, const RunSetup& setup, bool need_train) {
  OpenSources open;
  return open_data(config, setup, need_train, {}, open);
}

RunData open_data(const Config& config, const RunSetup& setup, bool need_train, std::span<const std::string> earlier,
                  OpenSources& opened) {
  const DataConfig& data = config.data;
  RunData result;
  if (!data.tokenizer.empty()) {
    const std::int64_t words = Tokenizer(data.tokenizer).vocab();
    require_input(words <= config.model.vocab, "{} has {} tokens: set model.vocab = {} or more (it is {})",
                  data.tokenizer, words, words, config.model.vocab);
    result.tokenizer = read_whole_file(data.tokenizer);
  }
  const auto kind = data.order == DataOrder::sequential ? SampleOrder::Kind::sequential : SampleOrder::Kind::shuffled;
  std::vector<std::string> prefixes;
  const auto open = [&](const std::string& prefix) {
    prefixes.push_back(prefix);
    const SampleShape shape = sample_shape(config);
    std::shared_ptr<const TokenSource>& source = opened.sources[prefix];
    if (!source) source = open_tokens(prefix);
    std::shared_ptr<const TokenSamples>& samples = opened.samples[{prefix, shape.seq_len}];
    if (!samples) {
      if (shape.packed) make_packing_file(setup, *source, shape.seq_len);
      samples = std::make_shared<const TokenSamples>(source, shape);
    }
    return samples;
  };
  const auto hold_out = [&](const std::shared_ptr<const TokenSamples>& samples, std::int64_t first,
                            std::int64_t count) {
    require_targets(data.valid.empty() ? "data.train" : "data.valid", *samples, first, count);
    const SampleOrder order(SampleOrder::Kind::sequential, config.run.seed, first, count);
    result.valid.push_back(TokenLoader({{.samples = samples, .order = order}}));
  };
  if (need_train || data.valid.empty()) {
    const std::vector<DataSource> sources = data_sources("data.train", data.train);
    require_usage(!sources.empty(), "data.train is not set: name a prefix of {} files, which lyceum tokenize writes",
                  token_endings());
    std::vector<TokenLoader::Source> train;
    std::vector<std::string> known(earlier.begin(), earlier.end());  // all sources so far
    for (const auto& [prefix, weight] : sources) {
      const auto at = std::ranges::find(known, prefix);
      const auto number = static_cast<std::size_t>(at - known.begin());
      if (at == known.end()) known.push_back(prefix);
      const auto samples = open(prefix);
      const std::int64_t count = samples->count();
      const std::int64_t held_out =
          data.valid.empty() ? std::llround(static_cast<double>(count) * data.valid_fraction) : 0;
      require_input(!data.valid.empty() || data.valid_fraction == 0 || held_out > 0,
                    "{}: {} samples are too few for data.valid_fraction = {}: raise it, or set data.valid",
                    samples->token_source().path(), count, data.valid_fraction);
      require_input(count - held_out > 0, "{}: {} tokens leave no training sample of {} tokens",
                    samples->token_source().path(), samples->token_source().tokens(), config.batch.seq_len);
      if (need_train) require_targets("data.train", *samples, 0, count - held_out);
      train.push_back({.samples = samples,
                       .order = SampleOrder(kind, config.run.seed, 0, count - held_out, number),
                       .weight = weight > 0 ? weight : static_cast<double>(count - held_out)});
      if (held_out > 0) hold_out(samples, count - held_out, held_out);
    }
    result.train.emplace(std::move(train));
  }
  for (const auto& [prefix, weight] : data_sources("data.valid", data.valid)) {
    require_usage(weight == 0, "data.valid = {}: validation has no weights, give only prefixes",
                  value_text(data.valid));
    const auto samples = open(prefix);
    hold_out(samples, 0, samples->count());
  }
  require_one_tokenizer(data.tokenizer, result.tokenizer.empty() ? "" : sha256(result.tokenizer), prefixes);
  return result;
}

bool same_samples(const Config& one, const Config& other) {
  return one.data.train == other.data.train && one.batch.seq_len == other.batch.seq_len;
}

void open_data_of_stages(const Config& config, const RunSetup& setup, int first, std::vector<RunData>& data,
                         OpenSources& open) {
  data.resize(static_cast<std::size_t>(stage_count(config)));
  std::vector<std::string> known;  // sources of the stages so far, each once
  for (int stage = 1; stage <= stage_count(config); ++stage) {
    const Config own = config_of_stage(config, stage);
    RunData& of_stage = data[static_cast<std::size_t>(stage) - 1];
    if (stage >= first && !of_stage.train) {
      const RunData* const before = stage > 1 ? &data[static_cast<std::size_t>(stage) - 2] : nullptr;
      const bool same = before && before->train && same_samples(own, config_of_stage(config, stage - 1));
      of_stage = same ? *before : open_data(own, setup, true, known, open);
    }
    for (const auto& [prefix, weight] : data_sources("data.train", own.data.train)) {
      if (std::ranges::find(known, prefix) == known.end()) known.push_back(prefix);
    }
  }
}

void identify(RunData& data, const DataConfig& config, const ProcessGroup& world, OpenSources& open) {
  std::vector<std::pair<const char*, const TokenSource*>> sources;
  const auto add = [&](const char* key, const TokenLoader& loader) {
    for (const TokenLoader::Source& source : loader.sources())
      sources.emplace_back(key, &source.samples->token_source());
  };
  add("data.train", *data.train);
  if (!config.valid.empty()) {  // otherwise validation samples are parts of the files of data.train
    for (const TokenLoader& loader : data.valid) add("data.valid", loader);
  }
  std::vector<std::string> fingerprints(sources.size());
  work_on_files_of_rank_zero(world, [&] {
    for (std::size_t s = 0; s < sources.size(); ++s) {
      const auto known = open.fingerprints.find(sources[s].second->prefix());
      fingerprints[s] = known == open.fingerprints.end() ? sources[s].second->fingerprint() : known->second;
    }
  });
  data.files.clear();
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const auto& [key, file] = sources[s];
    data.files.push_back({.key = key, .prefix = file->prefix(), .fingerprint = world.broadcast(fingerprints[s], 0)});
    open.fingerprints[file->prefix()] = data.files.back().fingerprint;
  }
  std::vector<TokenLoader::Source> train(data.train->sources().begin(), data.train->sources().end());
  for (TokenLoader::Source& source : train) {
    source.fingerprint = open.fingerprints.at(source.samples->token_source().prefix());
  }
  data.train.emplace(std::move(train));
}

std::int64_t RunData::valid_samples() const {
  return std::accumulate(valid.begin(), valid.end(), std::int64_t{0},
                         [](std::int64_t sum, const TokenLoader& loader) { return sum + loader.samples(); });
}

std::optional<Range> RunData::valid_tokens() const {
  if (valid.size() != 1 || valid[0].masked()) return {};
  const std::int64_t seq_len = valid[0].sources()[0].samples->shape().seq_len;
  return Range{valid[0].order().first() * seq_len, valid[0].order().count() * seq_len + 1};
}

}  // namespace lyceum
