#include "io/data/encoding/encoding_journal.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "io/data/records/record_source.h"
#include "io/files/sha256.h"
#include "io/files/whole_file.h"
#include "io/text/json.h"

namespace lyceum {

std::string encoding_identity(const Encoding& encoding) {
  std::string all = fmt::format("3 {} {} {} {} {} {} {} {}\n", encoding.tokenizer_sha256, encoding.json_key,
                                encoding.chat ? encoding.chat->name : "", encoding.valid, encoding.valid_fraction,
                                encoding.seed, encoding.batches.text, encoding.batches.document);
  for (const auto& [format, document, compressed, modified, output, most_bytes] : encoding.items) {
    all += fmt::format("{} {} {} {} {} {} {} {}\n", document.file.native(), document.begin, document.bytes, modified,
                       format->number, compressed, static_cast<int>(output), most_bytes);
  }
  return sha256(all);
}

std::string journal_path(const std::string& prefix) { return prefix + ".progress"; }

void write_journal(const Encoding& encoding, const std::string& identity, const EncodingState& state) {
  nlohmann::ordered_json json{{"encoding", identity},
                              {"item", state.at.item},
                              {"bytes", state.at.within.bytes},
                              {"record", state.at.within.record},
                              {"outputs", nlohmann::json::array()},
                              {"skipped", state.skipped.json()},
                              {"replaced", {{"bytes", state.replaced.bytes}, {"first", state.replaced.first}}}};
  for (std::size_t o = 0; o < encoding_outputs; ++o) {
    const auto& [written, size] = std::pair(state.written[o], state.size[o]);
    json["outputs"].push_back({{"documents", written.documents},
                               {"sequences", written.sequences},
                               {"tokens", written.tokens},
                               {"masked", written.masked},
                               {"bytes", size.bytes},
                               {"trained", size.trained}});
  }
  write_whole_file(journal_path(encoding.train), json_text(json, 2) + "\n");
}

std::optional<EncodingState> read_journal(const Encoding& encoding, std::int64_t vocab) {
  std::error_code error;
  if (!std::filesystem::exists(journal_path(encoding.train), error)) return std::nullopt;
  EncodingState state;
  try {
    const std::string text = read_whole_file(journal_path(encoding.train));
    require_shallow(text);
    const nlohmann::json json = parse_json<nlohmann::json>(text);
    if (json.at("encoding") != encoding_identity(encoding)) return std::nullopt;
    state.at = {.item = Exact(json.at("item")),
                .within = {.bytes = Exact(json.at("bytes")), .record = Exact(json.at("record"))}};
    for (std::size_t o = 0; o < encoding_outputs; ++o) {
      const nlohmann::json& output = json.at("outputs").at(o);
      state.written[o] = {.documents = Exact(output.at("documents")),
                          .sequences = Exact(output.at("sequences")),
                          .tokens = Exact(output.at("tokens")),
                          .masked = output.at("masked")};
      state.size[o] = {.documents = state.written[o].documents,
                       .bytes = Exact(output.at("bytes")),
                       .tokens = state.written[o].tokens,
                       .trained = Exact(output.at("trained"))};
    }
    state.skipped = Skipped::from_json(json.at("skipped"));
    const nlohmann::json& replaced = json.at("replaced");
    state.replaced = {.bytes = Exact(replaced.at("bytes")), .first = replaced.at("first")};
  } catch (const Error&) {
    return std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
  const bool kept = MegatronWriter::can_resume(encoding.train, vocab, state.written[0]) &&
                    (encoding.valid.empty() || MegatronWriter::can_resume(encoding.valid, vocab, state.written[1]));
  return kept ? std::optional(state) : std::nullopt;
}

}  // namespace lyceum
