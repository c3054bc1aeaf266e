#include "io/routing/difficult.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "core/error.h"
#include "core/real_text.h"
#include "io/text/json.h"
#include "io/text/table.h"
#include "kernels/cross_entropy.h"

namespace lyceum {
namespace {

constexpr std::int64_t rows_at_once = 1 << 16;

/// Calls f(rows) for consecutive ranges of at most `rows_at_once` rows that cover all tokens.
template <class F>
void for_rows(std::int64_t tokens, const F& f) {
  for (std::int64_t first = 0; first < tokens; first += rows_at_once) {
    f(Range{first, std::min(rows_at_once, tokens - first)});
  }
}

/// Returns for each of the rows whether its target counts.
std::vector<bool> counts(const TokenLogFile& log, const Range& rows) {
  const std::vector<std::int64_t> targets = log.identity(rows)[2];
  std::vector<bool> result;
  for (const std::int64_t target : targets) result.push_back(target != no_target);
  return result;
}

/// Returns the number of tokens whose target counts.
std::int64_t counted_tokens(const TokenLogFile& log) {
  std::int64_t tokens = 0;
  for_rows(log.tokens(), [&](const Range& rows) { tokens += std::ranges::count(counts(log, rows), true); });
  return tokens;
}

/// Returns the mean loss of the `tokens` tokens whose target counts.
double mean_loss(const TokenLogFile& log, std::int64_t tokens) {
  double sum = 0;
  for_rows(log.tokens(), [&](const Range& rows) {
    const std::vector<float> losses = log.losses(rows);
    const std::vector<bool> counted = counts(log, rows);
    for (std::size_t t = 0; t < losses.size(); ++t) sum += counted[t] ? static_cast<double>(losses[t]) : 0;
  });
  return sum / static_cast<double>(tokens);
}

/// Throws a bad_input Error unless both logs are of the same tokens.
void require_same_tokens(const TokenLogFile& a, const TokenLogFile& b) {
  require_input(
      a.tokens() == b.tokens(),
      "{} has {} tokens, {} has {}: evaluate both models on the same data with the same --batches and batch.seq_len",
      a.path().string(), a.tokens(), b.path().string(), b.tokens());
  for_rows(a.tokens(), [&](const Range& rows) {
    const auto of_a = a.identity(rows), of_b = b.identity(rows);
    for (std::size_t i = 0; i < of_a.size(); ++i) {
      const auto [at, other] = std::ranges::mismatch(of_a[i], of_b[i]);
      require_input(at == of_a[i].end(), "{} and {} are for different data: the token of row {} differs",
                    a.path().string(), b.path().string(), rows.first + (at - of_a[i].begin()));
    }
  });
}

/// Adds the counted tokens whose loss in A is above the threshold. `a` and `b` are the losses of the same tokens; the
/// members loss_a and loss_b are sums until all tokens are added.
void add(DifficultTokens::Reduction& reduction, std::span<const float> a, std::span<const float> b,
         const std::vector<bool>& counted) {
  for (std::size_t t = 0; t < a.size(); ++t) {
    if (!counted[t] || !(static_cast<double>(a[t]) > reduction.threshold)) continue;
    ++reduction.tokens;
    reduction.loss_a += static_cast<double>(a[t]);
    reduction.loss_b += static_cast<double>(b[t]);
  }
}

/// Returns the distinct widths of all FFN experts in descending order, with the number of experts.
std::vector<DifficultTokens::Width> widths_of(const TokenLogFile& log) {
  std::vector<DifficultTokens::Width> widths;
  for (const TokenLogLayer& layer : log.layers()) {
    if (layer.id.site != Site::ffn) continue;
    for (const std::int64_t size : layer.expert_sizes) {
      auto found = std::ranges::find(widths, size, &DifficultTokens::Width::width);
      if (found == widths.end()) found = widths.insert(found, {.width = size});
      ++found->experts;
    }
  }
  std::ranges::sort(widths, std::greater(), &DifficultTokens::Width::width);
  return widths;
}

/// Counts the choices of model B in one layer.
struct LayerCounter {
  const TokenLogFile& log;
  std::size_t layer;
  std::vector<std::size_t> width_index;  // index into the widths, for each expert

  LayerCounter(const TokenLogFile& log, std::size_t layer, const std::vector<DifficultTokens::Width>& widths)
      : log(log), layer(layer) {
    for (const std::int64_t size : log.layers()[layer].expert_sizes) {
      const auto found = std::ranges::find(widths, size, &DifficultTokens::Width::width);
      width_index.push_back(static_cast<std::size_t>(found - widths.begin()));
    }
  }
  /// Adds the tokens of `rows` whose target counts to the counts by width and to those of the layer's choices
  /// (`rows_of_layer`, one element per choice). `a` are the losses of all rows in A.
  void add(const Range& rows, std::span<const float> a, double threshold, std::vector<DifficultTokens::Width>& widths,
           std::span<DifficultTokens::LayerChoice> rows_of_layer) const {
    const std::vector<std::int32_t> chosen = log.chosen(layer, rows);
    const std::vector<bool> counted = counts(log, rows);
    const std::size_t k = rows_of_layer.size();
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (!counted[i / k]) continue;
      const std::size_t at = width_index[static_cast<std::size_t>(chosen[i])];
      const bool first = i % k == 0, difficult = static_cast<double>(a[i / k]) > threshold;
      widths[at].all_choices += 1;
      widths[at].all_first += first;
      if (!difficult) continue;
      widths[at].choices += 1;
      widths[at].first += first;
      ++rows_of_layer[i % k].tokens[at];
    }
  }
};

void add_choices(const TokenLogFile& a, const TokenLogFile& b, DifficultTokens& difficult) {
  difficult.widths = widths_of(b);
  const double threshold = difficult.reductions.front().threshold;
  for (std::size_t l = 0; l < b.layers().size(); ++l) {
    const TokenLogLayer& layer = b.layers()[l];
    if (layer.id.site != Site::ffn) continue;
    const std::size_t before = difficult.layers.size();
    for (std::int64_t k = 0; k < layer.top_k; ++k) {
      difficult.layers.push_back({layer.id, k, std::vector<std::int64_t>(difficult.widths.size(), 0)});
    }
    const LayerCounter counter(b, l, difficult.widths);
    for_rows(b.tokens(), [&](const Range& rows) {
      counter.add(rows, a.losses(rows), threshold, difficult.widths, std::span(difficult.layers).subspan(before));
    });
  }
}

std::string share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? "" : fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

DifficultTokens::Width sum(const std::vector<DifficultTokens::Width>& widths) {
  DifficultTokens::Width all{.width = 0};
  for (const DifficultTokens::Width& width : widths) {
    all.experts += width.experts;
    all.choices += width.choices;
    all.first += width.first;
    all.all_choices += width.all_choices;
    all.all_first += width.all_first;
  }
  return all;
}

std::string reductions_text(const DifficultTokens& difficult) {
  Table table({">loss in A above", ">tokens", ">of all", ">loss in A", ">loss in B", ">reduction"});
  const auto add = [&](const std::string& name, std::int64_t tokens, double a, double b) {
    const auto nats = [&](double value) { return tokens == 0 ? "-" : real_text(value, ".4f"); };
    table.add({name, std::to_string(tokens), share(tokens, difficult.tokens), nats(a), nats(b), nats(a - b)});
  };
  for (const DifficultTokens::Reduction& row : difficult.reductions) {
    add(real_text(row.threshold, ".4g"), row.tokens, row.loss_a, row.loss_b);
  }
  add("all tokens", difficult.tokens, difficult.a.loss, difficult.b.loss);
  return table.text();
}

std::string widths_text(const DifficultTokens& difficult) {
  Table table({">expert width", ">experts", ">all choices", ">share", ">of all tokens", ">first choice", ">share",
               ">of all tokens"});
  const DifficultTokens::Width all = sum(difficult.widths);
  const auto add = [&](const std::string& name, const DifficultTokens::Width& row) {
    table.add({name, std::to_string(row.experts), std::to_string(row.choices), share(row.choices, all.choices),
               share(row.all_choices, all.all_choices), std::to_string(row.first), share(row.first, all.first),
               share(row.all_first, all.all_first)});
  };
  for (const DifficultTokens::Width& width : difficult.widths) add(std::to_string(width.width), width);
  if (difficult.widths.size() > 1) {
    add("wider than the mean", difficult.sum_of(1));
    add("narrower", difficult.sum_of(-1));
  }
  return table.text();
}

std::string layers_text(const DifficultTokens& difficult) {
  std::vector<std::string> headings{"layer, choice"};
  for (const DifficultTokens::Width& width : difficult.widths) headings.push_back(fmt::format(">{}", width.width));
  Table table(std::move(headings));
  for (const DifficultTokens::LayerChoice& row : difficult.layers) {
    std::vector<std::string> cells{fmt::format("layer{} top{}", label_of(row.id), row.choice)};
    std::ranges::transform(row.tokens, std::back_inserter(cells), [](std::int64_t n) { return std::to_string(n); });
    table.add(std::move(cells));
  }
  return table.text();
}

}  // namespace

DifficultTokens::Width DifficultTokens::sum_of(int sign) const {
  double total = 0, experts = 0;
  for (const Width& width : widths) {
    total += static_cast<double>(width.width) * static_cast<double>(width.experts);
    experts += static_cast<double>(width.experts);
  }
  std::vector<Width> side;
  for (const Width& width : widths) {
    if (sign * (static_cast<double>(width.width) - total / experts) > 0) side.push_back(width);
  }
  return sum(side);
}

DifficultTokens difficult_tokens(const TokenLogFile& a, const TokenLogFile& b, std::vector<double> thresholds) {
  require_same_tokens(a, b);
  const std::int64_t tokens = counted_tokens(a);
  DifficultTokens difficult{.a = {a.path().string(), a.step(), mean_loss(a, tokens)},
                            .b = {b.path().string(), b.step(), mean_loss(b, tokens)},
                            .tokens = tokens};
  if (thresholds.empty()) {
    for (const double times : default_thresholds) thresholds.push_back(times * difficult.a.loss);
  }
  std::ranges::sort(thresholds, std::greater());
  for (const double threshold : thresholds) difficult.reductions.push_back({.threshold = threshold});
  for_rows(a.tokens(), [&](const Range& rows) {
    const std::vector<float> of_a = a.losses(rows), of_b = b.losses(rows);
    const std::vector<bool> counted = counts(a, rows);
    for (DifficultTokens::Reduction& reduction : difficult.reductions) add(reduction, of_a, of_b, counted);
  });
  for (DifficultTokens::Reduction& reduction : difficult.reductions) {
    reduction.loss_a /= static_cast<double>(reduction.tokens);
    reduction.loss_b /= static_cast<double>(reduction.tokens);
  }
  add_choices(a, b, difficult);
  return difficult;
}

std::string difficult_text(const DifficultTokens& difficult, bool layers) {
  std::string text;
  for (const auto& [name, model] : {std::pair{"A", &difficult.a}, std::pair{"B", &difficult.b}}) {
    text +=
        fmt::format("{}  {} (step {}), mean loss {}\n", name, model->file, model->step, real_text(model->loss, ".4f"));
  }
  text += fmt::format("\nMean loss of the tokens that are difficult for A\n{}", reductions_text(difficult));
  const DifficultTokens::Reduction& most = difficult.reductions.front();
  if (difficult.widths.empty()) return text + "\nB has no routed experts.\n";
  text += fmt::format("\nExperts that B chooses for the {} with a loss above {} in A, all layers\n{}",
                      count_text(most.tokens, "token"), real_text(most.threshold, ".4g"), widths_text(difficult));
  if (layers)
    text += fmt::format("\nBy layer and choice: tokens that go to experts of each width\n{}", layers_text(difficult));
  return text;
}

std::string difficult_json(const DifficultTokens& difficult) {
  using Json = nlohmann::ordered_json;
  const auto model = [](const DifficultTokens::Model& of) {
    return Json{{"file", of.file}, {"step", of.step}, {"loss", of.loss}};
  };
  const auto choices = [](const DifficultTokens::Width& of) {
    return Json{{"experts", of.experts},
                {"choices", of.choices},
                {"first_choices", of.first},
                {"all_choices", of.all_choices},
                {"all_first_choices", of.all_first}};
  };
  Json result{{"a", model(difficult.a)}, {"b", model(difficult.b)}, {"tokens", difficult.tokens}};
  result["loss_reduction"] = Json::array();
  for (const DifficultTokens::Reduction& row : difficult.reductions) {
    result["loss_reduction"].push_back({{"threshold", row.threshold},
                                        {"tokens", row.tokens},
                                        {"loss_a", row.loss_a},
                                        {"loss_b", row.loss_b},
                                        {"reduction", row.reduction()}});  // NaN becomes null
  }
  result["threshold"] = difficult.reductions.front().threshold;
  result["widths"] = Json::array();
  for (const DifficultTokens::Width& width : difficult.widths) {
    Json row{{"width", width.width}};
    row.update(choices(width));
    result["widths"].push_back(std::move(row));
  }
  result["wider"] = choices(difficult.sum_of(1));
  result["narrower"] = choices(difficult.sum_of(-1));
  result["layers"] = Json::array();
  for (const DifficultTokens::LayerChoice& row : difficult.layers) {
    result["layers"].push_back({{"layer", row.id.layer}, {"choice", row.choice}, {"tokens", row.tokens}});
  }
  return json_text(result) + '\n';
}

}  // namespace lyceum
