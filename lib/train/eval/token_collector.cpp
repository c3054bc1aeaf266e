#include "train/eval/token_collector.h"

#include <algorithm>
#include <utility>

#include "core/copy.h"

namespace lyceum {

namespace {

/// Returns the values of a tensor of the accumulator type as f32, the type of token logs.
std::vector<float> floats_of(const Stream& stream, const Tensor& tensor) {
  return dispatch_accumulator(tensor.dtype(), [&]<class A>() {
    const std::vector<A> values = values_of<A>(stream, tensor);
    return std::vector<float>(values.begin(), values.end());
  });
}

}  // namespace

std::vector<TokenLogLayer> token_log_layers(const Config& config) {
  std::vector<TokenLogLayer> layers;
  for (const Mixture& mixture : mixtures_of(config)) layers.push_back({mixture.id, mixture.k, mixture.widths});
  return layers;
}

TokenCollector::TokenCollector(const RunSetup& setup, const Config& config, const StagedModel& model, TokenLog* log)
    : setup_(setup),
      config_(config),
      type_(accumulator_of(model.stages().front()->type())),
      log_(log),
      mixtures_(mixtures_of(config)) {
  std::vector<std::int64_t> own(mixtures_.size() + 1, 0);
  for (const auto& stage : model.stages()) {
    for (const Mixture& mixture : stage->mixtures()) {
      const auto index = std::ranges::find(mixtures_, mixture.id, &Mixture::id) - mixtures_.begin();
      own[static_cast<std::size_t>(index)] = 1;
    }
    if (stage->last_stage() && setup.mesh.tensor.rank() == 0) own.back() = 1;  // all tensor ranks have the same losses
  }
  held_.resize(own.size() * static_cast<std::size_t>(setup.mesh.world.size()));
  setup.mesh.world.all_gather(own, std::span(held_));
}

void TokenCollector::write_tokens(const TokenLoader& loader, const Range& samples) const {
  const std::int64_t seq_len = config_.batch.seq_len;
  std::vector<std::int32_t> sources(static_cast<std::size_t>(samples.count * seq_len)), targets(sources.size());
  loader.load(samples.first, samples.count, config_.model.vocab, {.inputs = sources, .targets = targets});
  std::vector<std::int64_t> positions;
  for (std::int64_t s = samples.first; s < samples.end(); ++s) {
    const std::vector<std::int64_t> of_sample = loader.token_positions(s);
    positions.insert(positions.end(), of_sample.begin(), of_sample.end());
  }
  log_->write_tokens(samples.first * seq_len, positions, sources, targets);
}

void TokenCollector::collect(const TokenLoader& loader, std::span<const MicroBatchRecord> seen) {
  const ProcessGroup& world = setup_.mesh.world;
  std::vector<std::int64_t> own;
  for (const MicroBatchRecord& batch : seen) {
    own.insert(own.end(), {batch.samples.first, batch.samples.count, batch.own_tokens.first, batch.own_tokens.count});
  }
  std::vector<std::int64_t> all(own.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(own, std::span(all));
  if (world.rank() != 0) return send(seen);
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto* ranges = all.data() + own.size() * static_cast<std::size_t>(rank);
    for (std::size_t b = 0; b < seen.size(); ++b, ranges += own.size() / seen.size()) {
      const Range samples{ranges[0], ranges[1]}, own_tokens{ranges[2], ranges[3]};
      if (samples.count == 0) continue;
      if (rank == 0) {
        write(loader, rank, seen[b]);
      } else {
        write(loader, rank, receive(rank, samples, own_tokens));
      }
    }
  }
}

const std::int64_t* TokenCollector::held_flags(int rank) const {
  return held_.data() + (mixtures_.size() + 1) * static_cast<std::size_t>(rank);
}

void TokenCollector::send(std::span<const MicroBatchRecord> seen) const {
  const ProcessGroup& world = setup_.mesh.world;
  std::vector<Pending> messages;
  for (const MicroBatchRecord& batch : seen) {
    if (batch.samples.count == 0) continue;
    if (held_flags(world.rank())[mixtures_.size()]) messages.push_back(world.send_async(batch.losses, 0));
    for (const ChosenExperts& chosen : batch.chosen) {
      messages.push_back(world.send_async(chosen.index, 0));
      messages.push_back(world.send_async(chosen.gates, 0));
    }
  }
  for (Pending& message : messages) message.wait();
}

TokenCollector::MicroBatchRecord TokenCollector::receive(int rank, const Range& samples,
                                                         const Range& own_tokens) const {
  const auto receive_tensor = [&](DType type, const Shape& shape) {
    Tensor values = Tensor::empty(setup_.stream, type, shape, MemoryKind::buffers);
    setup_.mesh.world.receive_async(values, rank).wait();
    return values;
  };
  MicroBatchRecord seen{.samples = samples, .own_tokens = own_tokens};
  if (held_flags(rank)[mixtures_.size()]) seen.losses = receive_tensor(type_, {samples.count * config_.batch.seq_len});
  for (std::size_t m = 0; m < mixtures_.size(); ++m) {
    if (!held_flags(rank)[m]) continue;
    const Shape shape{own_tokens.count, mixtures_[m].k};
    ChosenExperts chosen{.id = mixtures_[m].id, .index = receive_tensor(DType::i32, shape), .gates = {}};
    chosen.gates = receive_tensor(type_, shape);
    seen.chosen.push_back(std::move(chosen));
  }
  return seen;
}

void TokenCollector::write(const TokenLoader& loader, int rank, const MicroBatchRecord& seen) const {
  const std::int64_t first = seen.samples.first * config_.batch.seq_len;
  if (held_flags(rank)[mixtures_.size()]) {
    write_tokens(loader, seen.samples);
    log_->write_losses(first, floats_of(setup_.stream, seen.losses));
  }
  for (const ChosenExperts& chosen : seen.chosen) {
    const auto layer = std::ranges::find(mixtures_, chosen.id, &Mixture::id) - mixtures_.begin();
    log_->write_choices(static_cast<std::size_t>(layer), first + seen.own_tokens.first,
                        values_of<std::int32_t>(setup_.stream, chosen.index), floats_of(setup_.stream, chosen.gates));
  }
}

}  // namespace lyceum
