#pragma once

#include <cstddef>
#include <utility>

namespace lyceum {

/// Converts to any type, in unevaluated code. The number of members of an aggregate is the largest number of AnyField
/// that it can be initialised from.
struct AnyField {
  template <class T>
  operator T() const;  // NOLINT: must be implicit
};

template <class Aggregate, std::size_t... index>
constexpr bool takes(std::index_sequence<index...>) {
  return requires { Aggregate{(static_cast<void>(index), AnyField{})...}; };
}

template <class Aggregate, std::size_t count = 25>
constexpr std::size_t fields_of() {
  if constexpr (takes<Aggregate>(std::make_index_sequence<count>{})) {
    return count;
  } else {
    return fields_of<Aggregate, count - 1>();
  }
}

/// Calls f(member) for every member of an aggregate of 1 to 24 members, in order.
template <class Aggregate, class F>
void for_each_field(Aggregate& aggregate, const F& f) {
  constexpr std::size_t count = fields_of<Aggregate>();
  static_assert(count >= 1 && count <= 24);
  const auto visit = [&](auto&... fields) { (f(fields), ...); };
  if constexpr (count == 1) {
    auto& [a] = aggregate;
    visit(a);
  } else if constexpr (count == 2) {
    auto& [a, b] = aggregate;
    visit(a, b);
  } else if constexpr (count == 3) {
    auto& [a, b, c] = aggregate;
    visit(a, b, c);
  } else if constexpr (count == 4) {
    auto& [a, b, c, d] = aggregate;
    visit(a, b, c, d);
  } else if constexpr (count == 5) {
    auto& [a, b, c, d, e] = aggregate;
    visit(a, b, c, d, e);
  } else if constexpr (count == 6) {
    auto& [a, b, c, d, e, f] = aggregate;
    visit(a, b, c, d, e, f);
  } else if constexpr (count == 7) {
    auto& [a, b, c, d, e, f, g] = aggregate;
    visit(a, b, c, d, e, f, g);
  } else if constexpr (count == 8) {
    auto& [a, b, c, d, e, f, g, h] = aggregate;
    visit(a, b, c, d, e, f, g, h);
  } else if constexpr (count == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = aggregate;
    visit(a, b, c, d, e, f, g, h, i);
  } else if constexpr (count == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = aggregate;
    visit(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (count == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = aggregate;
    visit(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (count == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = aggregate;
    visit(a, b, c, d, e, f, g, h, i, j, k, l);
  } else if constexpr (count == 13) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = aggregate;
    visit(a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else if constexpr (count == 14) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = aggregate;
    visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  } else if constexpr (count == 15) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = aggregate;
    visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
  } else if constexpr (count == 16) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = aggregate;
    visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  } else if constexpr (count == 17) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = aggregate;
    visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q);
  } else if constexpr (count == 18) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = aggregate;
    visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r);
  } else if constexpr (count == 19) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s] = aggregate;
    visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s);
  } else if constexpr (count == 20) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = aggregate;
    visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t);
  } else if constexpr (count == 21) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u] = aggregate;
    visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
  } else if constexpr (count == 22) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v] = aggregate;
    visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v);
  } else if constexpr (count == 23) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w] = aggregate;
    visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w);
  } else if constexpr (count == 24) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x] = aggregate;
    visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x);
  }
}

}  // namespace lyceum
