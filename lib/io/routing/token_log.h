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
#include "io/files/new_hdf5.h"
#include "io/routing/mixture_id.h"

namespace lyceum {

/// A router whose choices a token log has.
struct TokenLogLayer {
  MixtureId id;
  std::int64_t top_k;
  std::vector<std::int64_t> expert_sizes;  // width of each routed expert
  bool operator==(const TokenLogLayer&) const = default;
};

/// Writes a token log: the tokens of an evaluation, their losses and the experts that they chose. Every dataset has one
/// row per token, in the order of the evaluation:
/// - /token i64 [tokens]: index in data.valid of the token that is read
/// - /source, /target i32 [tokens]: that token, and the one to predict; -1 if it does not count
/// - /loss f32 [tokens]: cross-entropy, nats; 0 if the target does not count
/// - /layers/LLL/chosen i32 [tokens, top_k]: experts, best first
/// - /layers/LLL/gate f32 [tokens, top_k]: factors of their outputs
///
/// The last two are for the layer's FFN; attention has the same under /layers/LLL/attention. There are dimension scales
/// token and choice, an attribute `units` of each dataset, and an attribute expert_sizes of each router's group and
/// datasets. The file's attributes `checkpoint`, `step` and `data` describe the evaluation. Call finish() once every
/// row is written.
class TokenLog {
 public:
  /// The evaluation that a log describes.
  struct Header {
    std::string checkpoint, data;
    std::int64_t step = 0, tokens = 0;
    std::vector<TokenLogLayer> layers{};
  };
  /// Creates the file as a NewHdf5, which finish() publishes. Throws if it cannot be created, or if another process is
  /// writing it.
  TokenLog(std::filesystem::path file, Header header);

  /// Write rows from `first` on. Every row must be written exactly once, in any order. `positions`: /token.
  void write_tokens(std::int64_t first, std::span<const std::int64_t> positions, std::span<const std::int32_t> sources,
                    std::span<const std::int32_t> targets);
  void write_losses(std::int64_t first, std::span<const float> losses);
  /// Writes choices of header.layers[layer]: both [rows, top_k].
  void write_choices(std::size_t layer, std::int64_t first, std::span<const std::int32_t> chosen,
                     std::span<const float> gates);
  /// Publishes the file, which is on the disk afterwards. Throws if rows are missing or it cannot be written.
  void finish();

 private:
  struct Layer {
    hdf5::Dataset chosen, gate;
    std::int64_t rows = 0;  // number of rows written
  };
  std::filesystem::path file_;
  NewHdf5 new_file_;
  Header header_;
  std::optional<hdf5::File> out_;
  std::optional<hdf5::Dataset> token_, source_, target_, loss_;
  std::vector<Layer> layers_;
  std::int64_t token_rows_ = 0, loss_rows_ = 0;
};

constexpr std::int64_t token_log_format_version = 1;

/// Reads a token log, a range of rows at a time. Throws a bad_input Error that names the file if it is damaged or not a
/// token log.
class TokenLogFile {
 public:
  /// Opens the file and checks its structure.
  explicit TokenLogFile(const std::filesystem::path& file);

  const std::filesystem::path& path() const { return file_.path(); }
  std::int64_t step() const { return step_; }
  std::int64_t tokens() const { return tokens_; }
  /// The routers, in forward order.
  const std::vector<TokenLogLayer>& layers() const { return layers_; }

  std::vector<float> losses(const Range& rows) const;  // throws if one is not finite
  /// Returns the datasets token, source and target of these rows.
  std::array<std::vector<std::int64_t>, 3> identity(const Range& rows) const;
  /// Returns the experts that layers()[layer] chose, [rows, top_k], best first.
  std::vector<std::int32_t> chosen(std::size_t layer, const Range& rows) const;

 private:
  hdf5::File file_;
  std::int64_t step_ = 0, tokens_ = 0;
  std::vector<TokenLogLayer> layers_;
};

}  // namespace lyceum
