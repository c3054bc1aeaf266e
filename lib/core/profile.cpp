#include "core/profile.h"

#include <cxxabi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>

#include "core/error.h"

namespace lyceum {

namespace {

/// "lyceum::Gemm<float, float>" → "Gemm"
std::string short_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                         std::free);
  std::string name = demangled ? demangled.get() : type.name();
  name = name.substr(0, name.find('<'));
  const std::size_t colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

}  // namespace

void Profile::charge() {
  Entry* const entry = open_.empty() ? nullptr : &entries_[open_.back()];
  if (clock_) {
    if (pending_.empty() && open_.empty()) first_stamp_ = Clock::now();
    const std::size_t now = clock_->stamp();
    if (entry) pending_.push_back({entry, resumed_stamp_, now});
    resumed_stamp_ = now;
  } else {
    const auto now = Clock::now();
    if (entry) entry->seconds += std::chrono::duration<double>(now - resumed_).count();
    resumed_ = now;
  }
}

void Profile::settle() {
  if (pending_.empty()) return;
  const std::vector<double> times = clock_->times();
  for (const Pending& span : pending_) span.entry->seconds += times[span.to] - times[span.from];
  pending_.clear();
  const double zero = std::chrono::duration<double>(first_stamp_.time_since_epoch()).count();
  for (PendingSpan& span : pending_spans_) {
    spans_.push_back({std::move(span.name), zero + times[span.from], zero + times[span.to]});
  }
  pending_spans_.clear();
}

void Profile::end_span(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  const Begin begin = begins_.back();
  begins_.pop_back();
  if (clock_) {
    pending_spans_.push_back({std::move(name), begin.stamp, resumed_stamp_});
  } else {
    const auto seconds = [](Clock::time_point time) {
      return std::chrono::duration<double>(time.time_since_epoch()).count();
    };
    spans_.push_back({std::move(name), seconds(begin.time), seconds(resumed_)});
  }
}

void Profile::enter(std::string name) {
  charge();
  if (clock_) clock_->open(name.c_str());
  std::string path = open_.empty() ? std::move(name) : open_.back() + "/" + name;
  ++entries_[path].calls;
  open_.push_back(std::move(path));
  if (records_spans_) begin_span();
}

void Profile::leave() {
  charge();
  if (clock_) clock_->close();
  if (records_spans_) end_span(open_.back());
  open_.pop_back();
}

void Profile::change_scopes(std::vector<std::string>& other) {
  charge();
  if (clock_) {
    for (std::size_t i = 0; i < open_.size(); ++i) clock_->close();
    for (const std::string& path : other) clock_->open(path.c_str() + (path.rfind('/') + 1));
  }
  if (records_spans_) {
    // The scopes around both tasks go on; those of one task end a span, those of the other one begin a new one.
    const auto common = static_cast<std::size_t>(std::ranges::mismatch(open_, other).in1 - open_.begin());
    while (begins_.size() > common) end_span(open_[begins_.size() - 1]);
    while (begins_.size() < other.size()) begin_span();
  }
  open_.swap(other);
}

void ProfileScope::enter(const char* name) { profile_->enter(name); }

void ProfileScope::enter(const std::type_info& type, const char* suffix) { profile_->enter(short_name(type) + suffix); }

void ProfileScope::leave() {
  try {
    profile_->leave();
  } catch (const Error&) {  // the device has failed: the next operation on it reports that
  }
}

}  // namespace lyceum
