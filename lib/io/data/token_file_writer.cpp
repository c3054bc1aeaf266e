#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "io/data/token_data.h"
#include "io/data/token_format.h"
#include "io/files/partial_file.h"

namespace lyceum {

namespace {

std::string mask_of(const std::string& prefix) { return prefix + ".mask"; }

void require_done(bool done, const std::string& path) {
  require(done, "{} cannot be written: {}", path, std::generic_category().message(errno));
}

/// Also where there is none.
void remove_file(const std::string& path) { require_done(std::remove(path.c_str()) == 0 || errno == ENOENT, path); }

void make_folder_of(const std::string& prefix) {
  const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  require(!error, "the folder {} cannot be made: {}", folder.native(), error.message());
}

}  // namespace

struct TokenFileWriter::Implementation {
  std::string prefix;
  std::int64_t vocab;
  bool narrow;  // u16 tokens
  PartialFile bin, idx;
  std::optional<PartialFile> mask{};  // from the first document on that brings one
  std::vector<std::int32_t> lengths{};
  std::int64_t tokens = 0;
  std::vector<std::uint16_t> buffer{};

  void add(std::span<const std::int32_t> document);
  void write_trained(std::int64_t count);
};

void TokenFileWriter::Implementation::add(std::span<const std::int32_t> document) {
  require(document.size() <= std::size_t{0x7fffffff}, "document {} of {} has {} tokens; cut it into several",
          lengths.size(), prefix, document.size());
  for (const std::int32_t token : document) {
    require(token >= 0 && token < vocab, "token {} in document {} of {} is not below the vocabulary of {}", token,
            lengths.size(), prefix, vocab);
  }
  if (narrow) {
    buffer.assign(document.begin(), document.end());
    bin.write_values(buffer);
  } else {
    bin.write(document.data(), document.size_bytes());
  }
  lengths.push_back(static_cast<std::int32_t>(document.size()));
  tokens += std::ssize(document);
}

/// That the next `count` tokens are trained.
void TokenFileWriter::Implementation::write_trained(std::int64_t count) {
  const std::vector<std::uint8_t> ones(std::min<std::size_t>(std::size_t{1} << 16, static_cast<std::size_t>(count)), 1);
  for (; count > 0; count -= std::ssize(ones)) {
    mask->write(ones.data(), std::min(ones.size(), static_cast<std::size_t>(count)));
  }
}

TokenFileWriter::TokenFileWriter(std::string prefix, std::int64_t vocab) {
  require_usage(vocab > 0 && vocab <= std::int64_t{1} << 31, "token files for a vocabulary of {}", vocab);
  make_folder_of(prefix);
  implementation_.reset(new Implementation{.prefix = prefix,
                                           .vocab = vocab,
                                           .narrow = vocab <= std::int64_t{1} << 16,
                                           .bin = PartialFile(prefix + ".bin"),
                                           .idx = PartialFile(prefix + ".idx")});
}

TokenFileWriter::~TokenFileWriter() = default;

void TokenFileWriter::add_document(std::span<const std::int32_t> tokens) {
  implementation_->add(tokens);
  if (implementation_->mask) implementation_->write_trained(std::ssize(tokens));
}

void TokenFileWriter::add_document(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> trained) {
  Implementation& out = *implementation_;
  require(trained.size() == tokens.size(), "document {} of {} has {} tokens and a mask of {}", out.lengths.size(),
          out.prefix, tokens.size(), trained.size());
  require(std::ranges::all_of(trained, [](std::uint8_t value) { return value <= 1; }),
          "the mask of document {} of {} has other values than 0 and 1", out.lengths.size(), out.prefix);
  if (!out.mask) {
    out.mask.emplace(mask_of(out.prefix));
    out.write_trained(out.tokens);
  }
  out.add(tokens);
  out.mask->write(trained.data(), trained.size());
}

void TokenFileWriter::finish() {
  Implementation& out = *implementation_;
  const auto sequences = static_cast<std::int64_t>(out.lengths.size());
  const std::int64_t bytes = out.narrow ? 2 : 4;
  std::vector<std::int64_t> offsets;
  std::int64_t end = 0;
  for (const std::int32_t length : out.lengths) {
    offsets.push_back(end);
    end += length * bytes;
  }
  require_input(out.tokens > 0, "{}: {} documents without a token make no token file", out.prefix, sequences);
  out.idx.write(token_format::magic.data(), token_format::magic.size());
  out.idx.write_value(token_format::version);
  out.idx.write_value(out.narrow ? token_format::code_u16 : token_format::code_i32);
  out.idx.write_value(sequences);
  out.idx.write_value(sequences + 1);
  out.idx.write_values(out.lengths);
  out.idx.write_values(offsets);
  for (std::int64_t boundary = 0; boundary <= sequences; ++boundary) out.idx.write_value(boundary);
  out.bin.close();
  out.idx.close();
  if (out.mask) out.mask->close();
  // A kill between the steps leaves no .idx, which is a named error, and never one beside another run's .bin or .mask.
  out.idx.remove_old();
  out.bin.publish();
  out.mask ? out.mask->publish() : remove_file(mask_of(out.prefix));
  out.idx.publish();
}

}  // namespace lyceum
