#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/range.h"
#include "io/files/hdf5.h"
#include "io/routing/mixture_id.h"

namespace lyceum {

/// A router whose choices a token log holds.
struct TokenLogLayer {
  MixtureId id;
  std::int64_t top_k;
  std::vector<std::int64_t> expert_sizes;  // width of each routed expert
  bool operator==(const TokenLogLayer&) const = default;
};

/// What the tokens of an evaluation were, what they cost and where they went. Every dataset has a row a token, in the
/// order of the evaluation:
///   /token i64 [tokens]                 place of the token that is read in data.valid
///   /source, /target i32 [tokens]       that token, and the one that is predicted; -1 where it does not count
///   /loss f32 [tokens]                  cross-entropy, nats; 0 where the target does not count
///   /layers/LLL/chosen i32 [tokens, k]  experts, best first, by the layer's FFN; the attention's:
///   /layers/LLL/attention /layers/LLL/gate f32 [tokens, k]    what their answers were multiplied by
/// Dimension scales token and choice; `units`; the attribute expert_sizes on each router's group and datasets;
/// `checkpoint`, `step` and `data` of the file describe what was evaluated.
class TokenLog {
 public:
  struct Header {
    std::string checkpoint, data;
    std::int64_t step = 0, tokens = 0;
    std::vector<TokenLogLayer> layers{};
  };
  /// Writes `.NAME.partial` next to the file, which finish() puts in its place.
  TokenLog(std::filesystem::path file, Header header);
  ~TokenLog();
  TokenLog(const TokenLog&) = delete;
  TokenLog& operator=(const TokenLog&) = delete;

  /// Rows from `first` on, each once, in any order.
  void write_tokens(std::int64_t first, std::span<const std::int64_t> places, std::span<const std::int32_t> sources,
                    std::span<const std::int32_t> targets);
  void write_losses(std::int64_t first, std::span<const float> losses);
  /// Of header.layers[layer]; [rows, top_k].
  void write_choices(std::size_t layer, std::int64_t first, std::span<const std::int32_t> chosen,
                     std::span<const float> gates);
  /// Throws where rows are missing. The file is on the disk then.
  void finish();

 private:
  struct Layer {
    hdf5::Dataset chosen, gate;
    std::int64_t rows = 0;  // written
  };
  std::filesystem::path file_, partial_;
  Header header_;
  std::optional<hdf5::File> out_;
  std::optional<hdf5::Dataset> token_, source_, target_, loss_;
  std::vector<Layer> layers_;
  std::int64_t token_rows_ = 0, loss_rows_ = 0;
};

constexpr std::int64_t token_log_format_version = 1;

/// The same for its reader, who takes some rows at a time. What is damaged or no token log is a bad_input Error that
/// names the file.
class TokenLogFile {
 public:
  explicit TokenLogFile(const std::filesystem::path& file);

  const std::filesystem::path& path() const { return file_.path(); }
  std::int64_t step() const { return step_; }
  std::int64_t tokens() const { return tokens_; }
  /// In the order of forward.
  const std::vector<TokenLogLayer>& layers() const { return layers_; }

  std::vector<float> losses(const Range& rows) const;  // finite
  /// Places, sources and targets, one after another.
  std::array<std::vector<std::int64_t>, 3> identity(const Range& rows) const;
  /// [rows, top_k] of layers()[layer].
  std::vector<std::int32_t> chosen(std::size_t layer, const Range& rows) const;

 private:
  hdf5::File file_;
  std::int64_t step_ = 0, tokens_ = 0;
  std::vector<TokenLogLayer> layers_;
};

}  // namespace lyceum
