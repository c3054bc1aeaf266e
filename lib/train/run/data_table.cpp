#include "train/run/data_table.h"

#include <fmt/format.h>

#include "io/text/table.h"

namespace lyceum {

namespace {

/// What documents became, or nothing.
std::string packing_line(const TokenSamples& samples) {
  const Packing* packing = samples.packing();
  if (!packing) return "";
  const double positions = static_cast<double>(packing->sequences() * samples.shape().seq_len);
  return fmt::format("packing    {}: {} in {} of {}, {:.1f} % padding, {} split", samples.token_source().prefix(),
                     count_text(packing->documents(), "document"), count_text(packing->sequences(), "sequence"),
                     samples.shape().seq_len, 100 - 100 * static_cast<double>(packing->predicted_tokens()) / positions,
                     packing->cut_documents());
}

}  // namespace

std::vector<std::string> data_lines(const Config& config, const RunData& data) {
  const std::span<const TokenLoader::Source> sources = data.train->sources();
  const auto samples = static_cast<double>(config.run.steps * config.batch.global);
  const auto epochs = [&](std::size_t s) {
    return samples * data.train->weight(s) / static_cast<double>(sources[s].order.count());
  };
  const std::string held_out = data.valid.empty() ? "" : fmt::format(" · {} for validation", data.valid_samples());
  std::vector<std::string> lines;
  if (sources.size() == 1) {
    lines.push_back(fmt::format("data       {} · {} training samples{} · {:.2f} epochs",
                                sources[0].samples->token_source().prefix(), data.train->samples(), held_out,
                                epochs(0)));
  } else {
    lines.push_back(
        fmt::format("data       {} sources · {} training samples{}", sources.size(), data.train->samples(), held_out));
    Table table({"source", ">tokens", ">samples", ">weight", ">epochs"});
    for (std::size_t s = 0; s < sources.size(); ++s) {
      table.add({sources[s].samples->token_source().prefix(),
                 fmt::format("{}", sources[s].samples->token_source().tokens()),
                 fmt::format("{}", sources[s].order.count()), fmt::format("{:.4f}", data.train->weight(s)),
                 fmt::format("{:.2f}", epochs(s))});
    }
    for (const std::string& line : table.lines()) lines.push_back("           " + line);
  }
  for (const TokenLoader::Source& source : sources) {
    if (const std::string line = packing_line(*source.samples); !line.empty()) lines.push_back(line);
  }
  return lines;
}

}  // namespace lyceum
