#include "io/data/loader/token_loader.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/random.h"
#include "kernels/cross_entropy.h"

namespace lyceum {

std::int64_t samples_in(std::int64_t tokens, std::int64_t seq_len) {
  require_usage(seq_len > 0, "batch.seq_len={}: a sample has at least one token", seq_len);
  return std::max<std::int64_t>(0, tokens - 1) / seq_len;
}

SampleOrder::SampleOrder(Kind kind, std::uint64_t seed, std::int64_t first, std::int64_t count, std::size_t source)
    : kind_(kind), seed_(seed), first_(first), count_(count), source_(source), taken_(count) {
  require(first >= 0 && count >= 0, "a range of {} samples from sample {}", count, first);
}

std::int64_t SampleOrder::operator()(std::int64_t index) const {
  require(index >= 0 && count_ > 0, "position {} in an order of {} samples", index, count_);
  const std::int64_t epoch = index / taken_, taken = index % taken_;
  // The middle of the taken-th of taken_ parts, as even as whole numbers allow.
  const std::int64_t part = count_ / taken_, within = taken * part + taken * (count_ % taken_) / taken_ + part / 2;
  if (kind_ == Kind::sequential) return first_ + within;
  const std::string of = source_ == 0 ? "samples/epoch/" : "samples/" + std::to_string(source_) + "/epoch/";
  const Permutation permutation(seed_, of + std::to_string(epoch), static_cast<std::uint64_t>(count_));
  return first_ + static_cast<std::int64_t>(permutation(static_cast<std::uint64_t>(within)));
}

SampleOrder SampleOrder::spread(std::int64_t samples) const {
  require(samples >= 1 && samples <= count_, "{} positions of an order of {} samples", samples, count_);
  SampleOrder order = *this;
  order.taken_ = samples;
  return order;
}

TokenSamples::TokenSamples(std::shared_ptr<const TokenFile> file, const SampleShape& shape)
    : file_(std::move(file)), shape_(shape) {
  if (shape_.packed) packing_.emplace(file_->document_begins(), shape_.seq_len);
  require_usage(shape_.packed || count() > 0,
                "{} has {} tokens, and one sample of batch.seq_len={} needs {}: lower batch.seq_len or add text",
                file_->prefix(), file_->tokens(), shape_.seq_len, shape_.seq_len + 1);
  require_usage(count() > 0, "{} has no document of at least two tokens", file_->prefix());
}

std::int64_t TokenSamples::count() const {
  return packing_ ? packing_->sequences() : samples_in(file_->tokens(), shape_.seq_len);
}

bool TokenSamples::any_target(std::int64_t first, std::int64_t count) const {
  if (!masked()) return count > 0;
  TokenPiece whole{};
  std::vector<std::uint8_t> trained;
  for (std::int64_t sample = first; sample < first + count; ++sample) {
    for (const auto& [begin, inputs] : pieces_of(sample, whole)) {
      trained.resize(static_cast<std::size_t>(inputs));
      file_->read_trained(begin + 1, trained);
      if (shape_.documents && !packing_) {
        for (const std::int64_t at : file_->document_begins(begin + 1, begin + inputs + 1)) {
          trained[static_cast<std::size_t>(at - begin - 1)] = 0;
        }
      }
      if (std::ranges::find(trained, std::uint8_t{1}) != trained.end()) return true;
    }
  }
  return false;
}

/// `whole`: memory for the piece of a sample that has one.
std::span<const TokenPiece> TokenSamples::pieces_of(std::int64_t sample, TokenPiece& whole) const {
  if (packing_) return packing_->of(sample);
  whole = {sample * shape_.seq_len, shape_.seq_len};
  return {&whole, 1};
}

void TokenSamples::read_piece(const TokenPiece& piece, std::int64_t vocab, const SampleTokens& out) const {
  const auto inputs = static_cast<std::size_t>(piece.inputs);
  std::vector<std::int32_t> tokens(inputs + 1);
  file_->read(piece.begin, tokens);
  const auto wrong = std::ranges::find_if_not(tokens, [&](std::int32_t t) { return t >= 0 && t < vocab; });
  require_input(wrong == tokens.end(),
                "{}.bin: token {} at position {} is not in the vocabulary of {}: set model.vocab to the tokenizer's, "
                "or tokenise again",
                file_->prefix(), wrong == tokens.end() ? 0 : *wrong, piece.begin + (wrong - tokens.begin()), vocab);
  std::copy(tokens.begin(), tokens.end() - 1, out.inputs.begin());
  std::copy(tokens.begin() + 1, tokens.end(), out.targets.begin());
  if (file_->has_mask()) {
    std::vector<std::uint8_t> trained(inputs);
    file_->read_trained(piece.begin + 1, trained);
    for (std::size_t i = 0; i < inputs; ++i) {
      if (!trained[i]) out.targets[i] = no_target;
    }
  }
}

/// For a piece of the stream, at the begin of its sequence.
void TokenSamples::separate_documents(const TokenPiece& piece, const SampleTokens& out) const {
  std::ranges::fill(out.first_keys, 0);
  for (const std::int64_t begin : file_->document_begins(piece.begin + 1, piece.begin + piece.inputs + 1)) {
    const auto first = static_cast<std::size_t>(begin - piece.begin);
    out.targets[first - 1] = no_target;
    if (first < out.first_keys.size())
      std::ranges::fill(out.first_keys.subspan(first), static_cast<std::int32_t>(first));
  }
}

void TokenSamples::read(std::int64_t sample, std::int64_t vocab, const SampleTokens& out) const {
  TokenPiece whole{};
  std::size_t at = 0;
  const auto rest = [&](std::size_t count) {
    return SampleTokens{.inputs = out.inputs.subspan(at, count),
                        .targets = out.targets.subspan(at, count),
                        .first_keys = out.first_keys.empty() ? out.first_keys : out.first_keys.subspan(at, count)};
  };
  for (const TokenPiece& piece : pieces_of(sample, whole)) {
    const SampleTokens part = rest(static_cast<std::size_t>(piece.inputs));
    read_piece(piece, vocab, part);
    if (packing_) {
      std::ranges::fill(part.first_keys, static_cast<std::int32_t>(at));
    } else if (shape_.documents) {
      separate_documents(piece, part);
    }
    at += part.inputs.size();
  }
  const SampleTokens padding = rest(out.inputs.size() - at);
  std::ranges::fill(padding.inputs, 0);
  std::ranges::fill(padding.targets, no_target);
  std::ranges::fill(padding.first_keys, static_cast<std::int32_t>(at));
}

std::vector<std::int64_t> TokenSamples::places(std::int64_t sample) const {
  TokenPiece whole{};
  std::vector<std::int64_t> places;
  for (const TokenPiece& piece : pieces_of(sample, whole)) {
    for (std::int64_t i = 0; i < piece.inputs; ++i) places.push_back(piece.begin + i);
  }
  places.resize(static_cast<std::size_t>(shape_.seq_len), -1);
  return places;
}

TokenLoader::TokenLoader(std::vector<Source> sources) : sources_(std::move(sources)) {
  std::vector<double> weights;
  for (const auto& [samples, order, weight] : sources_) {
    const std::string& prefix = samples->file().prefix();
    const std::int64_t seq_len = samples->shape().seq_len;
    require_usage(order.count() > 0, "no sample of batch.seq_len={} is left of the {} in {}: lower it or add text",
                  seq_len, samples->count(), prefix);
    require_usage(order.first() <= samples->count() - order.count(),
                  "samples {} to {} of {}, which has {} of batch.seq_len={}", order.first(),
                  order.first() + order.count(), prefix, samples->count(), seq_len);
    weights.push_back(weight);
  }
  if (sources_.size() > 1) blend_ = std::make_shared<const Blend>(std::move(weights));
}

TokenLoader::TokenLoader(std::shared_ptr<const TokenFile> file, SampleOrder order, std::int64_t seq_len)
    : TokenLoader({{std::make_shared<const TokenSamples>(std::move(file), SampleShape{.seq_len = seq_len}), order}}) {}

Blend::Place TokenLoader::place_of(std::int64_t index) const {
  return blend_ ? blend_->at(index) : Blend::Place{0, index};
}

void TokenLoader::load(std::int64_t index, std::int64_t sequences, std::int64_t vocab, const SampleTokens& out) const {
  const auto length = static_cast<std::size_t>(sources_.front().samples->shape().seq_len);
  require(sequences >= 0 && out.inputs.size() == static_cast<std::size_t>(sequences) * length &&
              out.targets.size() == out.inputs.size(),
          "{} sequences of {} tokens into {} inputs and {} targets", sequences, length, out.inputs.size(),
          out.targets.size());
  require(out.first_keys.empty() || out.first_keys.size() == out.inputs.size(), "{} first keys for {} inputs",
          out.first_keys.size(), out.inputs.size());
  for (std::int64_t s = 0; s < sequences; ++s) {
    const auto at = static_cast<std::size_t>(s) * length;
    const auto [source, sample] = place_of(index + s);
    const auto& [samples, order, weight] = sources_[source];
    samples->read(order(sample), vocab,
                  {.inputs = out.inputs.subspan(at, length),
                   .targets = out.targets.subspan(at, length),
                   .first_keys = out.first_keys.empty() ? out.first_keys : out.first_keys.subspan(at, length)});
  }
}

bool TokenLoader::masked() const {
  return std::ranges::any_of(sources_, [](const Source& source) { return source.samples->masked(); });
}

std::vector<std::int64_t> TokenLoader::places(std::int64_t index) const {
  const auto [source, sample] = place_of(index);
  return sources_[source].samples->places(sources_[source].order(sample));
}

TokenLoader TokenLoader::spread(std::int64_t samples) const {
  return TokenLoader({{only().samples, only().order.spread(samples)}});
}

const TokenLoader::Source& TokenLoader::only() const {
  require(sources_.size() == 1, "one of {} sources must be given", sources_.size());
  return sources_.front();
}

std::int64_t TokenLoader::samples() const {
  std::int64_t sum = 0;
  for (const Source& source : sources_) sum += source.order.count();
  return sum;
}

}  // namespace lyceum
