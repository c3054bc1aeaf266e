#include "io/data/loader/sample_order.h"

#include <string>

#include "core/error.h"
#include "core/random.h"

namespace lyceum {

SampleOrder::SampleOrder(Kind kind, std::uint64_t seed, std::int64_t first, std::int64_t count, std::size_t source)
    : kind_(kind), seed_(seed), first_(first), count_(count), source_(source), taken_(count) {
  require(first >= 0 && count >= 0, "a range cannot have {} samples from sample {} on", count, first);
}

std::int64_t SampleOrder::operator()(std::int64_t index) const {
  require(index >= 0 && count_ > 0, "there is no position {} in an order of {} samples", index, count_);
  const std::int64_t epoch = index / taken_, taken = index % taken_;
  // The count_ positions are divided into taken_ parts that are as equal as integers allow. `within` is the middle of
  // part `taken`.
  const std::int64_t part = count_ / taken_, within = taken * part + taken * (count_ % taken_) / taken_ + part / 2;
  if (kind_ == Kind::sequential) return first_ + within;
  const std::string of = source_ == 0 ? "samples/epoch/" : "samples/" + std::to_string(source_) + "/epoch/";
  const Permutation permutation(seed_, of + std::to_string(epoch), static_cast<std::uint64_t>(count_));
  return first_ + static_cast<std::int64_t>(permutation(static_cast<std::uint64_t>(within)));
}

SampleOrder SampleOrder::of_source(std::size_t source) const {
  SampleOrder order = *this;
  order.source_ = source;
  return order;
}

SampleOrder SampleOrder::spread(std::int64_t samples) const {
  require(samples >= 1 && samples <= count_, "cannot spread {} positions over an order of {} samples", samples, count_);
  SampleOrder order = *this;
  order.taken_ = samples;
  return order;
}

}  // namespace lyceum
