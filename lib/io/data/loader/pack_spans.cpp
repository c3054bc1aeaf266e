#include "io/data/loader/pack_spans.h"

#include <algorithm>
#include <cstddef>

#include "io/data/loader/best_fit.h"

namespace lyceum {

namespace {

constexpr std::int64_t block_numbers = 1 << 16;

void advance(const PackingRequest& request) {
  if (request.progress) ++*request.progress;
}

/// Places all spans. Element s + 1 of the result is the number of spans of sequence s; the first element is 0.
std::vector<std::int64_t> place_spans(const PackingRequest& request, const PlacementStore& store) {
  BestFit fit(request.seq_len, request.survey.least_inputs);
  std::vector<std::int64_t> counts, block;
  // Enough for 1/9 of padding. Best fit usually leaves about 1 %.
  const std::int64_t full = request.survey.predicted_tokens / request.seq_len;
  counts.reserve(static_cast<std::size_t>(std::min(request.survey.spans, full + full / 8) + 2));
  counts.push_back(0);
  for_spans(request.source, request.seq_len, [&](const TokenSpan& span) {
    const std::int64_t sequence = fit.place(span.inputs);
    if (sequence + 1 == std::ssize(counts)) counts.push_back(0);
    ++counts[static_cast<std::size_t>(sequence) + 1];
    block.push_back(sequence);
    if (std::ssize(block) < block_numbers) return;
    advance(request);
    store.append(block);
    block.clear();
  });
  store.append(block);
  return counts;
}

/// Calls each(span, sequence) for all spans after they have been placed.
template <class Each>
void for_placed_spans(const PackingRequest& request, const PlacementStore& store, const Each& each) {
  std::vector<std::int64_t> block;
  std::int64_t at = 0;
  for_spans(request.source, request.seq_len, [&](const TokenSpan& span) {
    if (at % block_numbers == 0) {
      block.resize(static_cast<std::size_t>(std::min(block_numbers, request.survey.spans - at)));
      advance(request);
      store.read(at, block);
    }
    each(span, static_cast<std::size_t>(block[static_cast<std::size_t>(at++ % block_numbers)]));
  });
}

}  // namespace

std::vector<std::int64_t> pack_spans(const PackingRequest& request, const PlacementStore& store,
                                     std::int64_t block_spans,
                                     const std::function<void(std::span<const TokenSpan>)>& put) {
  if (request.survey.spans == 0) return {0};
  std::vector<std::int64_t> firsts = place_spans(request, store);
  for (std::size_t s = 1; s < firsts.size(); ++s) firsts[s] += firsts[s - 1];
  std::vector<TokenSpan> block;
  block.reserve(
      static_cast<std::size_t>(std::min(block_spans, request.survey.spans)));  // growing would take twice that
  std::vector<std::int64_t> next;  // index of the next span of each sequence in the block
  for (std::size_t first = 0, end = 0; first + 1 < firsts.size(); first = end) {
    // The sequences of this block are [first, end).
    const auto begin = firsts.begin() + static_cast<std::ptrdiff_t>(first);
    const auto after = std::upper_bound(begin, firsts.end(), *begin + block_spans);
    end = std::max(first + 1, static_cast<std::size_t>(after - firsts.begin()) - 1);
    block.resize(static_cast<std::size_t>(firsts[end] - firsts[first]));
    next.assign(begin, firsts.begin() + static_cast<std::ptrdiff_t>(end));
    for_placed_spans(request, store, [&](const TokenSpan& span, std::size_t sequence) {
      if (sequence < first || sequence >= end) return;
      block[static_cast<std::size_t>(next[sequence - first]++ - firsts[first])] = span;
    });
    advance(request);
    put(block);
  }
  return firsts;
}

PackingCounts counts_of(const PackingRequest& request, std::int64_t sequences) {
  return {.seq_len = request.seq_len,
          .sequences = sequences,
          .spans = request.survey.spans,
          .documents = request.survey.documents,
          .cut_documents = request.survey.cut_documents,
          .predicted_tokens = request.survey.predicted_tokens};
}

}  // namespace lyceum
