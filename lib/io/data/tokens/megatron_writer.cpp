#include "io/data/tokens/megatron_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "io/data/tokens/megatron_format.h"
#include "io/data/tokens/token_source.h"
#include "io/files/partial_file.h"
#include "io/files/system_reason.h"

namespace lyceum {

namespace {

void require_done(bool done, const std::string& path) {
  require(done, "{} cannot be written: {}", path, system_reason(errno));
}

/// Removes a file if it exists.
void remove_file(const std::string& path) { require_done(std::remove(path.c_str()) == 0 || errno == ENOENT, path); }

void make_folder_of(const std::string& prefix) {
  const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  require(!error, "cannot create the folder {}: {}", folder.native(), system_reason(error));
}

bool is_narrow(std::int64_t vocab) { return vocab <= std::int64_t{1} << 16; }  // tokens fit u16
std::int64_t token_bytes(std::int64_t vocab) { return is_narrow(vocab) ? 2 : 4; }

constexpr std::int64_t bytes_per_length = 4;

}  // namespace

std::string lengths_path(const std::string& prefix) { return prefix + ".lengths"; }

struct MegatronWriter::Implementation {
  std::string prefix;
  std::int64_t vocab;
  Progress done;
  PartialFile bin;
  /// The length of each sequence, i32; ~length if the document continues after it. finish() derives the .idx from it.
  PartialFile lengths;
  std::optional<PartialFile> mask{};  // since the first document with a mask
  bool within_document = false;
  std::vector<std::uint16_t> narrow{};
  std::optional<PartialFile> idx{}, description{};  // after complete()

  void write_trained(std::int64_t count);
  /// Calls each(length, ends_document) for every sequence.
  template <class Each>
  void for_lengths(const Each& each);
  void write_index(PartialFile& idx);
};

MegatronWriter::MegatronWriter(std::string prefix, std::int64_t vocab, const Progress& from) {
  require_usage(vocab > 0 && vocab <= std::int64_t{1} << 31, "token files cannot have a vocabulary of {}", vocab);
  make_folder_of(prefix);
  implementation_.reset(
      new Implementation{.prefix = prefix,
                         .vocab = vocab,
                         .done = from,
                         .bin = PartialFile(prefix + megatron::tokens_ending, from.tokens * token_bytes(vocab)),
                         .lengths = PartialFile(lengths_path(prefix), from.sequences * bytes_per_length)});
  if (from.masked) implementation_->mask.emplace(mask_path(prefix), from.tokens);
}

MegatronWriter::~MegatronWriter() = default;
MegatronWriter::MegatronWriter(MegatronWriter&&) noexcept = default;

void MegatronWriter::add_sequence(std::span<const std::int32_t> tokens,
                                  std::optional<std::span<const std::uint8_t>> trained, bool ends_document) {
  Implementation& out = *implementation_;
  require(tokens.size() <= std::size_t{0x7fffffff}, "sequence {} of {} has {} tokens; split it", out.done.sequences,
          out.prefix, tokens.size());
  require(!trained || trained->size() == tokens.size(), "sequence {} of {} has {} tokens, but a mask of {}",
          out.done.sequences, out.prefix, tokens.size(), trained ? trained->size() : 0);
  require(!trained || std::ranges::all_of(*trained, [](std::uint8_t value) { return value <= 1; }),
          "the mask of sequence {} of {} has values other than 0 and 1", out.done.sequences, out.prefix);
  for (const std::int32_t token : tokens) {
    require(token >= 0 && token < out.vocab, "token {} in sequence {} of {} is not below the vocabulary of {}", token,
            out.done.sequences, out.prefix, out.vocab);
  }
  if (trained && !out.mask) {
    out.mask.emplace(mask_path(out.prefix), 0);
    out.done.masked = true;
    out.write_trained(out.done.tokens);
  }
  if (trained) {
    out.mask->write_values(*trained);
  } else if (out.mask) {
    out.write_trained(std::ssize(tokens));
  }
  if (is_narrow(out.vocab)) {
    out.narrow.assign(tokens.begin(), tokens.end());
    out.bin.write_values(std::span<const std::uint16_t>(out.narrow));
  } else {
    out.bin.write_values(tokens);
  }
  const auto length = static_cast<std::int32_t>(tokens.size());
  out.lengths.write_value(ends_document ? length : ~length);
  out.within_document = !ends_document;
  if (ends_document) ++out.done.documents;
  ++out.done.sequences;
  out.done.tokens += length;
}

/// Marks the next `count` tokens in the mask as trained.
void MegatronWriter::Implementation::write_trained(std::int64_t count) {
  const std::vector<std::uint8_t> ones(std::min<std::size_t>(std::size_t{1} << 16, static_cast<std::size_t>(count)), 1);
  for (; count > 0; count -= std::ssize(ones)) {
    mask->write(ones.data(), std::min(ones.size(), static_cast<std::size_t>(count)));
  }
}

MegatronWriter::Progress MegatronWriter::save() {
  Implementation& out = *implementation_;
  out.bin.save();
  out.lengths.save();
  if (out.mask) out.mask->save();
  return out.done;
}

bool MegatronWriter::can_resume(const std::string& prefix, std::int64_t vocab, const Progress& progress) {
  const auto holds = [&](const std::string& file, std::int64_t bytes) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(PartialFile::name_of(file), error);
    return !error && size >= static_cast<std::uintmax_t>(bytes);
  };
  return holds(prefix + megatron::tokens_ending, progress.tokens * token_bytes(vocab)) &&
         holds(lengths_path(prefix), progress.sequences * bytes_per_length) &&
         (!progress.masked || holds(mask_path(prefix), progress.tokens));
}

template <class Each>
void MegatronWriter::Implementation::for_lengths(const Each& each) {
  std::vector<std::int32_t> block(std::size_t{1} << 16);
  for (std::int64_t first = 0; first < done.sequences; first += std::ssize(block)) {
    block.resize(std::min(block.size(), static_cast<std::size_t>(done.sequences - first)));
    lengths.read_values(bytes_per_length * first, std::span(block));
    for (const std::int32_t length : block) each(length < 0 ? ~length : length, length >= 0);
  }
}

void MegatronWriter::Implementation::write_index(PartialFile& idx) {
  idx.write(megatron::magic.data(), megatron::magic.size());
  idx.write_value(megatron::version);
  idx.write_value(is_narrow(vocab) ? megatron::code_u16 : megatron::code_i32);
  idx.write_value(done.sequences);
  idx.write_value(done.documents + 1);
  for_lengths([&](std::int32_t length, bool) { idx.write_value(length); });
  std::int64_t offset = 0, sequence = 0;
  for_lengths([&](std::int32_t length, bool) {
    idx.write_value(offset);
    offset += length * token_bytes(vocab);
  });
  bool begins = true;
  for_lengths([&](std::int32_t, bool ends) {
    if (begins) idx.write_value(sequence);
    begins = ends;
    ++sequence;
  });
  idx.write_value(sequence);
}

void MegatronWriter::complete(const std::optional<TokenMeta>& meta) {
  Implementation& out = *implementation_;
  require_input(out.done.tokens > 0, "{}: {} documents contain no token, but a token file needs at least one",
                out.prefix, out.done.documents);
  require(!out.within_document, "{}: the last document has no end", out.prefix);
  out.bin.close();
  if (out.mask) out.mask->close();
  out.lengths.flush();
  out.idx.emplace(out.prefix + megatron::index_ending);
  out.write_index(*out.idx);
  out.idx->close();
  if (!meta) return;
  const std::string text = token_meta_text(*meta);
  out.description.emplace(meta_path(out.prefix));
  out.description->write(text.data(), text.size());
  out.description->close();
}

void MegatronWriter::publish() {
  Implementation& out = *implementation_;
  require(out.idx.has_value(), "{} is published before it is complete", out.prefix);
  // If the process is killed between these steps, the .idx is missing, which open_tokens() reports. An .idx is never
  // next to the .bin, the mask or the description of another writer.
  remove_file(out.prefix + megatron::index_ending);
  out.bin.publish();
  if (out.mask) {
    out.mask->publish();
  } else {
    remove_file(mask_path(out.prefix));
  }
  if (out.description) {
    out.description->publish();
  } else {
    remove_file(meta_path(out.prefix));
  }
  out.idx->publish();
  out.lengths.drop();
}

}  // namespace lyceum
