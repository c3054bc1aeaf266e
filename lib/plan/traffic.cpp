#include "plan/traffic.h"

namespace lyceum {

void Traffic::add(const MeshRank& mesh_rank, Axis axis, Transfer transfer, double bytes, double calls) {
  if (mesh_rank.size(axis) == 1 || bytes == 0) return;
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

void Traffic::scale(Axis axis, double factor) {
  for (Volume& volume : volumes_[static_cast<std::size_t>(axis)]) volume.bytes *= factor;
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

}  // namespace lyceum
