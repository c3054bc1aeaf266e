#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// max(x, 0), element by element.
struct Relu {
  struct Saved {
    Tensor y;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
