#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "io/data/token_data.h"

namespace lyceum {

std::int64_t samples_in(std::int64_t tokens, std::int64_t seq_len) {
  require_usage(seq_len > 0, "batch.seq_len={}: a sample has at least one token", seq_len);
  return std::max<std::int64_t>(0, tokens - 1) / seq_len;
}

SampleOrder::SampleOrder(Kind kind, std::uint64_t seed, std::int64_t first, std::int64_t count)
    : kind_(kind), seed_(seed), first_(first), count_(count), taken_(count) {
  require(first >= 0 && count >= 0, "a range of {} samples from sample {}", count, first);
}

std::int64_t SampleOrder::operator()(std::int64_t index) const {
  require(index >= 0 && count_ > 0, "position {} in an order of {} samples", index, count_);
  const std::int64_t epoch = index / taken_, taken = index % taken_;
  // The middle of the taken-th of taken_ parts, as even as whole numbers allow.
  const std::int64_t part = count_ / taken_, within = taken * part + taken * (count_ % taken_) / taken_ + part / 2;
  if (kind_ == Kind::sequential) return first_ + within;
  const Permutation permutation(seed_, "samples/epoch/" + std::to_string(epoch), static_cast<std::uint64_t>(count_));
  return first_ + static_cast<std::int64_t>(permutation(static_cast<std::uint64_t>(within)));
}

SampleOrder SampleOrder::spread(std::int64_t samples) const {
  require(samples >= 1 && samples <= count_, "{} positions of an order of {} samples", samples, count_);
  SampleOrder order = *this;
  order.taken_ = samples;
  return order;
}

TokenLoader::TokenLoader(std::shared_ptr<const TokenFile> file, SampleOrder order, std::int64_t seq_len)
    : file_(std::move(file)), order_(order), seq_len_(seq_len) {
  const std::int64_t samples = samples_in(file_->tokens(), seq_len_);
  require_usage(samples > 0,
                "{} holds {} tokens, and one sample of batch.seq_len={} needs {}: shorten batch.seq_len or add text",
                file_->prefix(), file_->tokens(), seq_len_, seq_len_ + 1);
  require_usage(order_.count() > 0, "no sample of batch.seq_len={} is left of the {} in {}: shorten it or add text",
                seq_len_, samples, file_->prefix());
  require_usage(order_.first() <= samples - order_.count(), "samples {} to {} of {}, which has {} of batch.seq_len={}",
                order_.first(), order_.first() + order_.count(), file_->prefix(), samples, seq_len_);
}

void TokenLoader::load(std::int64_t index, std::int64_t sequences, std::int64_t vocab, std::span<std::int32_t> inputs,
                       std::span<std::int32_t> targets) const {
  const auto length = static_cast<std::size_t>(seq_len_);
  require(sequences >= 0 && inputs.size() == static_cast<std::size_t>(sequences) * length &&
              targets.size() == inputs.size(),
          "{} sequences of {} tokens into {} inputs and {} targets", sequences, seq_len_, inputs.size(),
          targets.size());
  const auto valid = [vocab](std::int32_t token) { return token >= 0 && token < vocab; };
  std::vector<std::int32_t> sample(length + 1);
  for (std::int64_t s = 0; s < sequences; ++s) {
    const std::int64_t begin = order_(index + s) * seq_len_;
    file_->read(begin, sample);
    const auto wrong = std::ranges::find_if_not(sample, valid);
    require_input(wrong == sample.end(),
                  "{}.bin: token {} at position {} is not in the vocabulary of {}: set model.vocab to the tokenizer's, "
                  "or tokenise again",
                  file_->prefix(), wrong == sample.end() ? 0 : *wrong, begin + (wrong - sample.begin()), vocab);
    const std::int64_t place = s * seq_len_;
    std::copy(sample.begin(), sample.end() - 1, inputs.begin() + place);
    std::copy(sample.begin() + 1, sample.end(), targets.begin() + place);
  }
}

double unigram_entropy(const TokenFile& file, std::int64_t first, std::int64_t count) {
  constexpr std::int64_t most_tokens = std::int64_t{1} << 24;
  require(count > 0, "the entropy of {} tokens", count);
  std::vector<std::int64_t> counts;
  std::vector<std::int32_t> chunk(std::size_t{1} << 16);
  for (std::int64_t at = first; at < first + count; at += static_cast<std::int64_t>(chunk.size())) {
    chunk.resize(std::min(chunk.size(), static_cast<std::size_t>(first + count - at)));
    file.read(at, chunk);
    const auto [least, most] = std::ranges::minmax(chunk);
    require_input(least >= 0 && most < most_tokens, "{}.bin: token {} is in no vocabulary", file.prefix(),
                  least < 0 ? least : most);
    counts.resize(std::max(counts.size(), static_cast<std::size_t>(most) + 1));
    for (const std::int32_t token : chunk) ++counts[static_cast<std::size_t>(token)];
  }
  double entropy = 0;
  for (const std::int64_t n : counts) {
    const double p = static_cast<double>(n) / static_cast<double>(count);
    if (n > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

}  // namespace lyceum
