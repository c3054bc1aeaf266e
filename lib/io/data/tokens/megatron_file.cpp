#include "io/data/tokens/megatron_file.h"

#include "core/error.h"
#include "io/data/tokens/megatron_format.h"
#include "io/data/tokens/megatron_index.h"
#include "io/files/input_file.h"

namespace lyceum {

namespace {

class MegatronFile : public TokenSource {
 public:
  explicit MegatronFile(const std::string& prefix)
      : TokenSource(prefix),
        bin_(prefix + megatron::tokens_ending,
             "name the prefix of a .bin and an .idx file, or create them with `lyceum tokenize`"),
        index_(prefix, bin_.size()),
        tokens_(static_cast<std::int64_t>(bin_.size() / index_.type().bytes)) {}

  std::int64_t tokens() const override { return tokens_; }
  std::int64_t documents() const override { return index_.documents(); }
  std::int64_t document_begin(std::int64_t d) const override { return index_.document_begin(d); }
  void for_document_begins(const std::function<void(std::span<const std::int64_t>)>& each) const override {
    index_.for_document_begins(each);
  }
  const std::string& path() const override { return bin_.path(); }

 private:
  void copy_tokens(std::int64_t first, std::span<std::int32_t> out) const override {
    megatron::dispatch(index_.type(), [&]<class T>() { copy<T>(first, out); });
  }

  template <class T>
  void copy(std::int64_t first, std::span<std::int32_t> out) const {
    std::vector<T> values(out.size());
    bin_.read_values(static_cast<std::uint64_t>(first) * sizeof(T), std::span(values));
    bool fits = true;
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<std::int32_t>(values[i]);
      fits &= static_cast<T>(out[i]) == values[i];
    }
    if (fits) return;
    for (std::size_t i = 0; i < out.size(); ++i) {
      require_input(static_cast<T>(out[i]) == values[i], "{}: token {} at position {} exceeds 32 bits", bin_.path(),
                    static_cast<std::int64_t>(values[i]), first + static_cast<std::int64_t>(i));
    }
  }

  void add_contents(Sha256& digest) const override {
    add_sample(digest, bin_);
    add_sample(digest, index_.file());
  }

  InputFile bin_;
  MegatronIndex index_;
  std::int64_t tokens_;
};

}  // namespace

std::unique_ptr<TokenSource> open_megatron(const std::string& prefix) { return std::make_unique<MegatronFile>(prefix); }

}  // namespace lyceum
