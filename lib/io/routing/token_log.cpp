#include "io/routing/token_log.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "io/routing/groups.h"

namespace lyceum {
namespace {

constexpr std::int64_t rows_of_chunk = 4096;

Box rows_of(const Range& rows) { return {.offset = Shape{rows.first}, .extent = Shape{rows.count}}; }
Box rows_of(const Range& rows, std::int64_t columns) {
  return {.offset = Shape{rows.first, 0}, .extent = Shape{rows.count, columns}};
}

hdf5::Dataset create_rows(hdf5::File& file, const std::string& path, DType type, Shape shape, const char* units) {
  Shape chunk = shape;
  chunk[0] = std::min(shape[0], rows_of_chunk);
  hdf5::Dataset dataset = file.create_dataset(path, type, shape, {.chunk = chunk});
  dataset.set("units", units);
  return dataset;
}

}  // namespace

TokenLog::TokenLog(std::filesystem::path file, Header header)
    : file_(std::move(file)), new_file_(file_), header_(std::move(header)) {
  require(header_.tokens > 0, "{}: a log without tokens", file_.string());
  require_usage(!std::filesystem::is_directory(file_), "--token-log {}: is a directory", file_.string());
  out_.emplace(hdf5::File::create(new_file_.temporary()));
  out_->set("format", "lyceum.tokens");
  out_->set("format_version", token_log_format_version);
  out_->set("checkpoint", header_.checkpoint);
  out_->set("step", header_.step);
  out_->set("data", header_.data);
  const Shape rows{header_.tokens};
  token_.emplace(create_rows(*out_, "/token", DType::i64, rows, "1"));
  token_->make_scale("token");
  const auto dataset = [&](const char* path, DType type, const char* units) {
    hdf5::Dataset made = create_rows(*out_, path, type, rows, units);
    made.attach_scale(0, *token_);
    made.label(0, "token");
    return made;
  };
  source_.emplace(dataset("/source", DType::i32, "1"));
  target_.emplace(dataset("/target", DType::i32, "1"));
  loss_.emplace(dataset("/loss", DType::f32, "nats"));
  for (const TokenLogLayer& layer : header_.layers) {
    const std::string group = group_of(layer.id);
    const hdf5::Dataset choice = create_scale(*out_, group + "/choice", layer.top_k, "choice");
    const auto choices = [&](const char* name, DType type) {
      hdf5::Dataset made = create_rows(*out_, group + name, type, {header_.tokens, layer.top_k}, "1");
      made.attach_scale(0, *token_);
      made.label(0, "token");
      made.attach_scale(1, choice);
      made.label(1, "choice");
      made.set("expert_sizes", layer.expert_sizes);
      return made;
    };
    layers_.push_back({.chosen = choices("/chosen", DType::i32), .gate = choices("/gate", DType::f32)});
    out_->object(group).set("expert_sizes", layer.expert_sizes);
  }
}

void TokenLog::write_tokens(std::int64_t first, std::span<const std::int64_t> positions,
                            std::span<const std::int32_t> sources, std::span<const std::int32_t> targets) {
  const Box rows = rows_of({first, std::ssize(positions)});
  require(sources.size() == positions.size() && targets.size() == positions.size(),
          "token log: numbers of positions ({}), sources ({}) and targets ({}) differ", positions.size(),
          sources.size(), targets.size());
  token_->write(rows, positions.data());
  source_->write(rows, sources.data());
  target_->write(rows, targets.data());
  token_rows_ += std::ssize(positions);
}

void TokenLog::write_losses(std::int64_t first, std::span<const float> losses) {
  loss_->write(rows_of({first, std::ssize(losses)}), losses.data());
  loss_rows_ += std::ssize(losses);
}

void TokenLog::write_choices(std::size_t layer, std::int64_t first, std::span<const std::int32_t> chosen,
                             std::span<const float> gates) {
  const std::int64_t k = header_.layers.at(layer).top_k, rows = std::ssize(chosen) / k;
  require(std::ssize(chosen) == rows * k && gates.size() == chosen.size(),
          "token log: {} choices and {} gates do not match {} per token", chosen.size(), gates.size(), k);
  if (rows == 0) return;
  layers_[layer].chosen.write(rows_of({first, rows}, k), chosen.data());
  layers_[layer].gate.write(rows_of({first, rows}, k), gates.data());
  layers_[layer].rows += rows;
}

void TokenLog::finish() {
  const auto require_whole = [&](const std::string& what, std::int64_t rows) {
    require(rows == header_.tokens, "{}: only {} of {} tokens have {}", file_.string(), rows, header_.tokens, what);
  };
  require_whole("positions", token_rows_);
  require_whole("losses", loss_rows_);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    require_whole("choices of layer " + label_of(header_.layers[l].id), layers_[l].rows);
  }
  layers_.clear();
  for (auto* dataset : {&token_, &source_, &target_, &loss_}) dataset->reset();
  out_->close();
  new_file_.publish();
}

TokenLogFile::TokenLogFile(const std::filesystem::path& file)
    : file_((require_input(std::filesystem::exists(file), "{}: no such file; lyceum eval --token-log writes it",
                           file.string()),
             hdf5::File::open(file))) {
  const std::string name = file.string();
  // The text of `format` is not read: HDF5 stores strings without checksums, and a damaged one can make it hang.
  require_input(file_.has_attribute("format_version") && file_.has_attribute("step") && file_.has("/loss"),
                "{}: is not a token log", name);
  require_input(file_.integer("format_version") == token_log_format_version,
                "{}: has format version {}, this program reads {}", name, file_.integer("format_version"),
                token_log_format_version);
  step_ = file_.integer("step");
  const Shape rows = file_.dataset("/loss").shape();
  require_input(rows.rank() == 1 && rows[0] > 0, "{}: /loss is {}, expected [tokens]", name, rows.text());
  tokens_ = rows[0];
  for (const char* path : {"/token", "/source", "/target"}) {
    require_input(file_.has(path) && file_.dataset(path).shape() == rows, "{}: {} is missing or is not {}", name, path,
                  rows.text());
  }
  if (!file_.has("/layers")) return;
  for (const MixtureId& id : routers_in(file_)) {
    const std::string group = group_of(id);
    require_input(file_.has(group + "/chosen") && file_.object(group).has_attribute("expert_sizes"),
                  "{}: {} lacks chosen or expert_sizes", name, group);
    const Shape shape = file_.dataset(group + "/chosen").shape();
    require_input(shape.rank() == 2 && shape[0] == tokens_ && shape[1] > 0, "{}: {}/chosen is {}, expected [{}, top_k]",
                  name, group, shape.text(), tokens_);
    layers_.push_back({id, shape[1], file_.object(group).integers("expert_sizes")});
  }
}

std::vector<float> TokenLogFile::losses(const Range& rows) const {
  std::vector<float> values(static_cast<std::size_t>(rows.count));
  file_.dataset("/loss").read(rows_of(rows), values.data());
  const auto bad = std::ranges::find_if_not(values, [](float loss) { return std::isfinite(loss); });
  require_input(bad == values.end(), "{}: the loss of row {} is not finite", path().string(),
                rows.first + (bad - values.begin()));
  return values;
}

std::array<std::vector<std::int64_t>, 3> TokenLogFile::identity(const Range& rows) const {
  std::array<std::vector<std::int64_t>, 3> all;
  std::size_t i = 0;
  for (const char* name : {"/token", "/source", "/target"}) {
    std::vector<std::int64_t>& values = all[i++];
    values.resize(static_cast<std::size_t>(rows.count));
    file_.dataset(name).read(rows_of(rows), values.data());
  }
  return all;
}

std::vector<std::int32_t> TokenLogFile::chosen(std::size_t layer, const Range& rows) const {
  const TokenLogLayer& of = layers_.at(layer);
  std::vector<std::int32_t> values(static_cast<std::size_t>(rows.count * of.top_k));
  file_.dataset(group_of(of.id) + "/chosen").read(rows_of(rows, of.top_k), values.data());
  const auto experts = std::ssize(of.expert_sizes);
  const auto bad = std::ranges::find_if_not(values, [&](std::int32_t e) { return e >= 0 && e < experts; });
  require_input(bad == values.end(), "{}: {}/chosen names an expert {}, but there are only {}", path().string(),
                group_of(of.id), bad == values.end() ? 0 : *bad, experts);
  return values;
}

}  // namespace lyceum
