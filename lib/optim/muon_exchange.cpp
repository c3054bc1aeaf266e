#include "optim/muon_exchange.h"

#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "core/device_table.h"
#include "optim/newton_schulz.h"

namespace lyceum {

ProcessGroup new_muon_group(const Mesh& mesh, ParameterUnit::Group group) {
  const int ep = mesh.shape.expert, etp = mesh.shape.expert_tensor;
  if (group == ParameterUnit::Group::expert) {
    return mesh.data_tensor.split([=](int rank) { return rank / etp % ep; }, "muon experts");
  }
  return mesh.data_tensor.split([](int) { return 0; }, "muon");
}

namespace {

std::int64_t sum(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace

MuonExchange::MuonExchange(const Stream& stream, const Mesh& mesh, std::span<const UpdatedShare> shares,
                           const RuleAssignment& rules, ParameterUnit::Group group, std::vector<double>& loads)
    : stream_(stream), group_(new_muon_group(mesh, group)) {
  Shares own;
  for (const UpdatedShare& share : shares) {
    if (share.share.unit->group() == group) own.push_back(&share);
  }
  if (own.empty()) return;
  type_ = own.front()->share.values.dtype();
  const MuonGroup holders =
      muon_group(mesh.shape, mesh.world.size(), mesh.index, group, own.front()->share.sharded ? 1 : 0);
  sharing_ = holders.sharing;
  const ProcessGroup* const sharers = group == ParameterUnit::Group::expert ? &mesh.expert_tensor : &mesh.tensor;
  const MuonLayout layout = layout_of(own, rules, holders.rank, sharing_.sharers > 1 ? sharers : nullptr);
  const std::vector<int> owners = holders.choose_owners(layout.slices.front(), loads);
  for (MuonRound& plan : muon_rounds(layout, owners, type_, muon_round_bytes)) {
    Round round{.plan = std::move(plan), .own = {}, .sent = {}, .received = {}, .returned = {}, .taken = {}};
    round.own = table_of_boxes(round.plan.own, own);
    round.sent = table_of_boxes(round.plan.sent_boxes, own);
    round.received = table_of_boxes(round.plan.received_boxes);
    round.returned = table_of_boxes(round.plan.returned_boxes);
    round.taken = table_of_boxes(round.plan.taken_boxes, own);
    rounds_.push_back(std::move(round));
  }
}

/// Returns the slices of all sharers, which `sharers` (null for a single one) tell each other. Collective over them.
MuonLayout MuonExchange::layout_of(const Shares& shares, const RuleAssignment& rules, int rank,
                                   const ProcessGroup* sharers) const {
  MuonLayout layout{.sharing = sharing_, .rank = rank, .slices = {}, .unit_sizes = {}, .unit_of = {}};
  std::vector<MatrixSlice> own;
  std::vector<std::int64_t> numbers;  // what differs between sharers
  for (std::size_t u = 0; u < shares.size(); ++u) {
    numbers.push_back(shares[u]->share.size);
    for (const MatrixSlice& slice : matrix_slices(rules, *shares[u]->share.unit)) {
      own.push_back(slice);
      layout.unit_of.push_back(u);
    }
  }
  for (const MatrixSlice& s : own) {
    for (const std::int64_t n : {s.first, s.pitch, s.row, s.col, s.own_rows, s.own_cols}) numbers.push_back(n);
  }
  const auto count = static_cast<std::size_t>(sharing_.sharers);
  std::vector<std::int64_t> all(numbers.size() * count);
  if (sharers) {
    sharers->all_gather(std::span<const std::int64_t>(numbers), std::span(all));
  } else {
    all = numbers;
  }
  auto next = all.begin();
  for (std::size_t sharer = 0; sharer < count; ++sharer) {
    layout.unit_sizes.emplace_back(next, next + std::ssize(shares));
    next += std::ssize(shares);
    std::vector<MatrixSlice>& slices = layout.slices.emplace_back(own);
    for (MatrixSlice& s : slices) {
      for (std::int64_t* n : {&s.first, &s.pitch, &s.row, &s.col, &s.own_rows, &s.own_cols}) *n = *next++;
    }
  }
  return layout;
}

MuonExchange::Boxes MuonExchange::table_of_boxes(std::span<const ShareBox> boxes, const Shares& shares) const {
  Boxes made;
  dispatch_float(type_, [&]<class T>() {
    using A = Accumulator<T>;
    std::vector<StoredBox<A>> rows;
    for (const ShareBox& box : boxes) {
      const UnitShare& share = shares[box.unit]->share;
      rows.push_back({.memory = share.gradients.data<A>() + (box.held.first - share.updated.first),
                      .memory_stride = box.held.stride,
                      .first = box.first,
                      .stride = box.stride,
                      .rows = box.held.rows,
                      .cols = box.held.cols,
                      .first_block = made.blocks,
                      .factor = box.factor});
      made.blocks += flat_blocks_of(box.held.rows * box.held.cols);
    }
    made.table = table_of(stream_, rows);
  });
  return made;
}

MuonExchange::Boxes MuonExchange::table_of_boxes(std::vector<MovedBox> boxes) const {
  Boxes made;
  for (MovedBox& box : boxes) {
    box.first_block = made.blocks;
    made.blocks += flat_blocks_of(box.rows * box.cols);
  }
  made.table = table_of(stream_, boxes);
  return made;
}

Tensor MuonExchange::exchange(const Tensor& buffer, std::span<const std::int64_t> sent,
                              std::span<const std::int64_t> received) const {
  const Tensor result = Tensor::empty(stream_, type_, {sum(received)});
  group_
      .all_to_all_async({.sent = buffer.raw(),
                         .send_rows = sent,
                         .received = result.raw(),
                         .receive_rows = received,
                         .row_bytes = static_cast<std::int64_t>(size_of(type_)),
                         .owner = std::make_shared<std::pair<Tensor, Tensor>>(buffer, result)})
      .wait();
  return result;
}

template <class T>
void MuonExchange::run_round(const Round& round, std::span<const StepVerdict> verdict) const {
  using A = Accumulator<T>;
  const MuonRound& plan = round.plan;
  const auto buffer = [&](std::int64_t elements) { return Tensor::empty(stream_, type_, {elements}); };
  const auto pack = [&](const Boxes& boxes, const Tensor& to) {
    launch(stream_, PackBoxes<T>{rows_of<StoredBox<A>>(boxes.table), boxes.blocks, to.span<T>()});
  };
  const auto unpack = [&](const Boxes& boxes, const Tensor& from) {
    launch(stream_, UnpackBoxes<T>{rows_of<StoredBox<A>>(boxes.table), boxes.blocks, from.span<const T>(), verdict});
  };
  const auto move = [&](const Boxes& boxes, const Tensor& from, const Tensor& to) {
    launch(stream_, MoveBoxes<T>{rows_of<MovedBox>(boxes.table), boxes.blocks, from.span<const T>(), to.span<T>()});
  };
  const bool exchanges = group_.size() > 1 && !sharing_.gathers();
  const Tensor matrices = Tensor::zeros(stream_, type_, {plan.elements});
  pack(round.own, matrices);
  if (exchanges) {
    const Tensor parts = buffer(sum(plan.sent));
    pack(round.sent, parts);
    move(round.received, exchange(parts, plan.sent, plan.received), matrices);
  }
  for (const auto& [rows, cols, count, first] : plan.batches) {
    orthogonalize(stream_, matrices.slice(first, count * padded(rows) * padded(cols)), count, rows, cols);
  }
  unpack(round.own, matrices);
  if (exchanges) {
    const Tensor parts = buffer(sum(plan.returned));
    move(round.returned, matrices, parts);
    unpack(round.taken, exchange(parts, plan.returned, plan.taken));
  } else if (sharing_.gathers()) {
    const Tensor all = buffer(sum(plan.taken));
    group_.all_gather(matrices, all, plan.taken);
    unpack(round.taken, all);
  }
}

void MuonExchange::run(std::span<const StepVerdict> verdict) const {
  dispatch_float(type_, [&]<class T>() {
    for (const Round& round : rounds_) run_round<T>(round, verdict);
  });
}

}  // namespace lyceum
