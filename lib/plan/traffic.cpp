#include "plan/traffic.h"

#include <optional>

#include "kernels/router.h"
#include "model/balance_loss.h"
#include "model/expert_places.h"

namespace lyceum {

namespace {

double row_bytes(const Config& config) { return number(config.model.hidden) * number(element_bytes(config)); }

/// Whole matrices of rows go in and out of the shared matrices; see TokenLayout.
class Rows {
 public:
  Rows(const Config& config, const Place& place)
      : place_(place),
        sequence_(config.parallel.sequence),
        whole_(row_bytes(config) * number(token_share(config, place).tokens)),
        own_(row_bytes(config) * number(token_share(config, place).run)) {}

  void to_matrix(PassTraffic& pass) const {
    if (sequence_) {
      pass.forward.add(place_, Axis::tensor, Transfer::all_gather, own_);
      pass.backward.add(place_, Axis::tensor, Transfer::reduce_scatter, whole_);
    } else {
      pass.backward.add(place_, Axis::tensor, Transfer::all_reduce, whole_);
    }
  }
  /// What to_matrix() made is not kept, see TokenLayout::release_matrix().
  void to_matrix_again(PassTraffic& pass) const {
    if (sequence_) pass.backward.add(place_, Axis::tensor, Transfer::all_gather, own_);
  }
  void from_matrix(PassTraffic& pass) const {
    if (sequence_) {
      pass.forward.add(place_, Axis::tensor, Transfer::reduce_scatter, whole_);
      pass.backward.add(place_, Axis::tensor, Transfer::all_gather, own_);
    } else {
      pass.forward.add(place_, Axis::tensor, Transfer::all_reduce, whole_);
    }
  }
  /// What works on this rank's run, from rows and back.
  void run(PassTraffic& pass) const {
    if (sequence_) return;
    pass.forward.add(place_, Axis::tensor, Transfer::all_gather, own_);
    pass.backward.add(place_, Axis::tensor, Transfer::all_gather, own_);
  }

 private:
  const Place& place_;
  bool sequence_;
  double whole_, own_;  // bytes
};

void add_dispatch(const Config& config, const Mixture& mixture, const Place& place, PassTraffic& pass) {
  const int ranks = place.size(Axis::expert);
  const Placement placement = place_experts(config, mixture, ranks, {});
  const double local = number(std::ssize(placement.experts_of(place.index.expert)));
  const double experts = number(mixture.choices());
  const double row = row_bytes(config);
  const auto pairs = [&](int e) {
    return number(run_of(config, place.tensor_index_of_expert_peer(e))) * number(mixture.k);
  };
  double arriving = 0;  // of all peers, this rank too
  for (int e = 0; e < ranks; ++e) arriving += pairs(e) * local / experts;
  const double own_pairs = pairs(place.index.expert), staying = own_pairs * local / experts;
  const double sent = (own_pairs - staying) * row, answered = (arriving - staying) * row;
  pass.forward.add(place, Axis::expert, Transfer::all_to_all, (experts - local) * sizeof(std::int64_t));  // counts
  for (Traffic* way : {&pass.forward, &pass.backward}) {
    way->add(place, Axis::expert, Transfer::all_to_all, sent);
    way->add(place, Axis::expert, Transfer::all_to_all, answered);
  }
  const bool again = config.model.recompute == "selective";  // rows of experts are not kept
  if (again) pass.backward.add(place, Axis::expert, Transfer::all_to_all, sent);
  double all = 0;  // rows of the ranks that share these experts' widths
  for (int member = 0; member < place.size(Axis::expert_tensor); ++member) {
    Place peer = place;
    peer.index.expert_tensor = member;
    for (int e = 0; e < ranks; ++e) {
      all += number(run_of(config, peer.tensor_index_of_expert_peer(e))) * number(mixture.k) * local / experts;
    }
  }
  pass.forward.add(place, Axis::expert_tensor, Transfer::all_gather, local * sizeof(std::int64_t));
  for (Traffic* way : {&pass.forward, &pass.backward}) {
    way->add(place, Axis::expert_tensor, Transfer::all_gather, arriving * row);
    way->add(place, Axis::expert_tensor, Transfer::reduce_scatter, all * row);
  }
  if (again) pass.backward.add(place, Axis::expert_tensor, Transfer::all_gather, arriving * row);
}

/// Choices by expert of each sequence, which the ranks that share its tokens tell one another.
void add_capacity(const Config& config, const Mixture& mixture, const Place& place, PassTraffic& pass) {
  if (!(mixture.capacity_factor > 0)) return;
  const double counts = number(config.batch.micro * mixture.k * mixture.choices());
  pass.forward.add(place, Axis::tensor, Transfer::all_gather, counts * sizeof(std::int64_t));
}

void add_balance(const Config& config, const Mixture& mixture, const Place& place, PassTraffic& pass) {
  if (has_losses(config.balance)) {
    const double load = number(config.batch.micro) * number(load_width(mixture.choices())) * sizeof(double);
    pass.forward.add(place, Axis::tensor, Transfer::all_reduce, load);
  }
  if (is_over_batch(config.balance)) {
    const double sums = (informs(config.balance) ? 2 : 1) * number(mixture.choices()) + 1;
    pass.forward.add(place, Axis::data, Transfer::all_reduce, sums * sizeof(double));
  }
}

}  // namespace

void Traffic::add(const Place& place, Axis axis, Transfer transfer, double bytes, double calls) {
  if (place.size(axis) == 1 || bytes == 0) return;
  Volume& volume = volumes_[static_cast<std::size_t>(axis)][static_cast<std::size_t>(transfer)];
  volume.bytes += bytes;
  volume.calls += calls;
}

Traffic& Traffic::operator+=(const Traffic& other) {
  for (std::size_t a = 0; a < volumes_.size(); ++a) {
    for (std::size_t t = 0; t < volumes_[a].size(); ++t) {
      volumes_[a][t].bytes += other.volumes_[a][t].bytes;
      volumes_[a][t].calls += other.volumes_[a][t].calls;
    }
  }
  return *this;
}

Traffic Traffic::times(double count) const {
  Traffic result = *this;
  for (auto& axis : result.volumes_) {
    for (Volume& volume : axis) volume = {volume.bytes * count, volume.calls * count};
  }
  return result;
}

double Traffic::bytes(Axis axis) const {
  double sum = 0;
  for (const Volume& volume : volumes_[static_cast<std::size_t>(axis)]) sum += volume.bytes;
  return sum;
}

double Traffic::bytes() const {
  double sum = 0;
  for (std::size_t a = 0; a < volumes_.size(); ++a) sum += bytes(static_cast<Axis>(a));
  return sum;
}

PassTraffic block_traffic(const Config& config, const Place& place, std::int64_t layer) {
  const Rows rows(config, place);
  PassTraffic pass;
  const auto matrices = [&] {
    rows.to_matrix(pass);
    rows.from_matrix(pass);
    if (config.model.recompute == "selective") rows.to_matrix_again(pass);
  };
  matrices();  // attention
  if (dense_width(config, layer) > 0) matrices();
  if (const std::optional<Mixture> experts = routed_experts(config, layer)) {
    rows.run(pass);
    add_dispatch(config, *experts, place, pass);
    add_balance(config, *experts, place, pass);
    add_capacity(config, *experts, place, pass);
  }
  if (config.model.recompute == "full") pass.backward += pass.forward;
  return pass;
}

PassTraffic embedding_traffic(const Config& config, const Place& place) {
  PassTraffic pass;
  Rows(config, place).from_matrix(pass);
  return pass;
}

PassTraffic head_traffic(const Config& config, const Place& place) {
  PassTraffic pass;
  Rows(config, place).to_matrix(pass);
  const double statistics = 3;  // maximum, sum, the target's logit
  pass.forward.add(place, Axis::tensor, Transfer::all_gather,
                   statistics * number(token_share(config, place).tokens) * accumulator_bytes);
  return pass;
}

double boundary_bytes(const Config& config, const Place& place) {
  return row_bytes(config) * number(token_share(config, place).rows);
}

}  // namespace lyceum
