#include "io/data/records/item_bytes.h"

#include <algorithm>
#include <span>

namespace lyceum {

ItemBytes::ItemBytes(const CorpusItem& item, std::int64_t taken)
    : stream_(item.document.file.native()), begin_(item.document.begin) {
  // Only texts that are not compressed are divided into several items, so `begin_` is 0 if the file is compressed.
  stream_.skip(stream_.compressed() ? taken : begin_ + taken);
  if (!stream_.compressed()) left_ = item.document.bytes - taken;
  is_limited_ = item.most_bytes > 0 && item.most_bytes - taken < left_;
  if (is_limited_) left_ = item.most_bytes - taken;
}

bool ItemBytes::probe_cut() {
  char next = 0;
  return is_limited_ && left_ <= 0 && stream_.read({&next, 1}) > 0;
}

bool ItemBytes::read(std::size_t bytes, std::string& out) {
  const std::size_t before = out.size();
  out.resize(before + std::min(bytes, static_cast<std::size_t>(std::max<std::int64_t>(0, left_))));
  out.resize(before + stream_.read(std::span(out).subspan(before)));
  left_ -= static_cast<std::int64_t>(out.size() - before);
  return out.size() > before;
}

}  // namespace lyceum
