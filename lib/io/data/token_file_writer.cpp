#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "io/data/token_data.h"
#include "io/data/token_format.h"
#include "io/files/partial_file.h"

namespace lyceum {

namespace {

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
  std::vector<std::int32_t> lengths{};
  std::vector<std::uint16_t> buffer{};
};

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
  Implementation& out = *implementation_;
  require(tokens.size() <= std::size_t{0x7fffffff}, "document {} of {} has {} tokens; cut it into several",
          out.lengths.size(), out.prefix, tokens.size());
  for (const std::int32_t token : tokens) {
    require(token >= 0 && token < out.vocab, "token {} in document {} of {} is not below the vocabulary of {}", token,
            out.lengths.size(), out.prefix, out.vocab);
  }
  if (out.narrow) {
    out.buffer.assign(tokens.begin(), tokens.end());
    out.bin.write_values(out.buffer);
  } else {
    out.bin.write(tokens.data(), tokens.size_bytes());
  }
  out.lengths.push_back(static_cast<std::int32_t>(tokens.size()));
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
  require_input(end > 0, "{}: {} documents without a token make no token file", out.prefix, sequences);
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
  // A kill between the steps leaves no .idx, which is a named error, and never one beside another run's .bin.
  out.idx.remove_old();
  out.bin.publish();
  out.idx.publish();
}

}  // namespace lyceum
