#include "io/data/loader/token_samples.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "kernels/cross_entropy.h"

namespace lyceum {

std::int64_t samples_in(std::int64_t tokens, std::int64_t seq_len) {
  require_usage(seq_len > 0, "batch.seq_len={}: a sample must have at least one token", seq_len);
  return std::max<std::int64_t>(0, tokens - 1) / seq_len;
}

TokenSamples::TokenSamples(std::shared_ptr<const TokenSource> source, const SampleShape& shape)
    : source_(std::move(source)), shape_(shape) {
  if (shape_.packed) packing_ = open_packing(*source_, shape_.seq_len);
  require_usage(shape_.packed || count() > 0,
                "{} has {} tokens, but one sample of batch.seq_len={} needs {}: lower batch.seq_len or add text",
                source_->prefix(), source_->tokens(), shape_.seq_len, shape_.seq_len + 1);
  require_usage(count() > 0, "{} has no document of at least two tokens", source_->prefix());
}

std::int64_t TokenSamples::count() const {
  return packing_ ? packing_->sequences() : samples_in(source_->tokens(), shape_.seq_len);
}

bool TokenSamples::any_target(std::int64_t first, std::int64_t count) const {
  if (!masked()) return count > 0;
  std::vector<std::uint8_t> trained;
  for (std::int64_t sample = first; sample < first + count; ++sample) {
    for (const auto& [begin, inputs] : spans_of(sample)) {
      trained.resize(static_cast<std::size_t>(inputs));
      source_->read_trained(begin + 1, trained);
      if (shape_.documents && !packing_) {
        for (const std::int64_t at : source_->document_begins(begin + 1, begin + inputs + 1)) {
          trained[static_cast<std::size_t>(at - begin - 1)] = 0;
        }
      }
      if (std::ranges::find(trained, std::uint8_t{1}) != trained.end()) return true;
    }
  }
  return false;
}

/// Returns the spans of a sample.
std::vector<TokenSpan> TokenSamples::spans_of(std::int64_t sample) const {
  if (packing_) return packing_->spans_of(sample);
  return {{sample * shape_.seq_len, shape_.seq_len}};
}

void TokenSamples::read_span(const TokenSpan& span, std::int64_t vocab, const SampleTokens& out) const {
  const auto inputs = static_cast<std::size_t>(span.inputs);
  std::vector<std::int32_t> tokens(inputs + 1);
  source_->read(span.begin, tokens);
  const auto wrong = std::ranges::find_if_not(tokens, [&](std::int32_t t) { return t >= 0 && t < vocab; });
  require_input(wrong == tokens.end(),
                "{}: token {} at position {} is not in the vocabulary of {}: set model.vocab to the tokenizer's, "
                "or tokenise again",
                source_->path(), wrong == tokens.end() ? 0 : *wrong, span.begin + (wrong - tokens.begin()), vocab);
  std::copy(tokens.begin(), tokens.end() - 1, out.inputs.begin());
  std::copy(tokens.begin() + 1, tokens.end(), out.targets.begin());
  if (source_->has_mask()) {
    std::vector<std::uint8_t> trained(inputs);
    source_->read_trained(span.begin + 1, trained);
    for (std::size_t i = 0; i < inputs; ++i) {
      if (!trained[i]) out.targets[i] = no_target;
    }
  }
}

/// Masks the targets that begin documents, and sets first_keys to the first input of each document. `span` begins the
/// sequence.
void TokenSamples::separate_documents(const TokenSpan& span, const SampleTokens& out) const {
  std::ranges::fill(out.first_keys, 0);
  for (const std::int64_t begin : source_->document_begins(span.begin + 1, span.begin + span.inputs + 1)) {
    const auto first = static_cast<std::size_t>(begin - span.begin);
    out.targets[first - 1] = no_target;
    if (first < out.first_keys.size())
      std::ranges::fill(out.first_keys.subspan(first), static_cast<std::int32_t>(first));
  }
}

void TokenSamples::read(std::int64_t sample, std::int64_t vocab, const SampleTokens& out) const {
  std::size_t at = 0;
  const auto rest = [&](std::size_t count) {
    return SampleTokens{.inputs = out.inputs.subspan(at, count),
                        .targets = out.targets.subspan(at, count),
                        .first_keys = out.first_keys.empty() ? out.first_keys : out.first_keys.subspan(at, count)};
  };
  for (const TokenSpan& span : spans_of(sample)) {
    const SampleTokens part = rest(static_cast<std::size_t>(span.inputs));
    read_span(span, vocab, part);
    if (packing_) {
      std::ranges::fill(part.first_keys, static_cast<std::int32_t>(at));
    } else if (shape_.documents) {
      separate_documents(span, part);
    }
    at += part.inputs.size();
  }
  const SampleTokens padding = rest(out.inputs.size() - at);
  std::ranges::fill(padding.inputs, 0);
  std::ranges::fill(padding.targets, no_target);
  std::ranges::fill(padding.first_keys, static_cast<std::int32_t>(at));
}

std::vector<std::int64_t> TokenSamples::token_positions(std::int64_t sample) const {
  std::vector<std::int64_t> positions;
  for (const TokenSpan& span : spans_of(sample)) {
    for (std::int64_t i = 0; i < span.inputs; ++i) positions.push_back(span.begin + i);
  }
  positions.resize(static_cast<std::size_t>(shape_.seq_len), -1);
  return positions;
}

}  // namespace lyceum
