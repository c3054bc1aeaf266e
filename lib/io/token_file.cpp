#include <algorithm>
#include <limits>
#include <mutex>

#include "core/error.h"
#include "io/mapped_file.h"
#include "io/token_data.h"
#include "io/token_index.h"

namespace lyceum {

namespace {

/// Calls `f.template operator()<T>()` with the integer type that the index names.
template <class F>
decltype(auto) dispatch_tokens(const token_format::Type& type, F&& f) {
  switch (type.code) {
    case 1: return f.template operator()<std::uint8_t>();
    case 2: return f.template operator()<std::int8_t>();
    case 3: return f.template operator()<std::int16_t>();
    case 4: return f.template operator()<std::int32_t>();
    case 5: return f.template operator()<std::int64_t>();
    case 8: return f.template operator()<std::uint16_t>();
    default: fail(ExitCode::failed, "{} is no type of tokens", type.name);
  }
}

}  // namespace

struct TokenFile::Implementation {
  std::string prefix;
  MappedFile bin;
  TokenIndex index;
  std::int64_t tokens;
  mutable std::once_flag largest_known;
  mutable std::int64_t largest = 0;

  explicit Implementation(const std::string& prefix)
      : prefix(prefix),
        bin(prefix + ".bin", "name the prefix of a .bin and an .idx file, or make them with `lyceum tokenize`"),
        index(prefix, bin.size()),
        tokens(static_cast<std::int64_t>(bin.size() / index.type().bytes)) {}

  template <class T>
  T token(std::int64_t at) const {
    return bin.get<T>(static_cast<std::size_t>(at) * sizeof(T));
  }

  template <class T>
  void copy(std::int64_t first, std::span<std::int32_t> out) const {
    bool fits = true;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const T value = token<T>(first + static_cast<std::int64_t>(i));
      out[i] = static_cast<std::int32_t>(value);
      fits &= static_cast<T>(out[i]) == value;
    }
    if (fits) return;
    for (std::int64_t at = first;; ++at) {
      const auto value = static_cast<std::int64_t>(token<T>(at));
      require_input(value == static_cast<std::int32_t>(value), "{}: token {} at position {} is beyond 32 bits",
                    bin.path(), value, at);
    }
  }
};

TokenFile::TokenFile(const std::string& prefix) : implementation_(std::make_unique<Implementation>(prefix)) {}
TokenFile::~TokenFile() = default;
TokenFile::TokenFile(TokenFile&&) noexcept = default;

std::int64_t TokenFile::tokens() const { return implementation_->tokens; }
std::int64_t TokenFile::sequences() const { return implementation_->index.sequences(); }
std::int64_t TokenFile::documents() const { return implementation_->index.documents(); }
std::int64_t TokenFile::document_begin(std::int64_t d) const { return implementation_->index.document_begin(d); }
const std::string& TokenFile::prefix() const { return implementation_->prefix; }

void TokenFile::read(std::int64_t first, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  require(first >= 0 && count <= tokens() && first <= tokens() - count, "tokens {} to {} of {}, which holds {}", first,
          first + count, implementation_->bin.path(), tokens());
  dispatch_tokens(implementation_->index.type(), [&]<class T>() { implementation_->copy<T>(first, out); });
}

std::int64_t TokenFile::largest_token() const {
  const Implementation& file = *implementation_;
  std::call_once(file.largest_known, [&] {
    dispatch_tokens(file.index.type(), [&]<class T>() {
      T largest = std::numeric_limits<T>::min();
      for (std::int64_t i = 0; i < file.tokens; ++i) largest = std::max(largest, file.token<T>(i));
      file.largest = static_cast<std::int64_t>(largest);
    });
  });
  return file.largest;
}

}  // namespace lyceum
