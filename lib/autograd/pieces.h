#pragma once

#include <memory>

#include "autograd/tape.h"
#include "autograd/token_rows.h"
#include "kernels/piece_factors.h"
#include "kernels/segments.h"

namespace lyceum {

/// Which pieces of hidden each token of a pass uses: the first `always_on`, and those that its router chose [MoHD].
struct PieceChoices {
  std::int64_t pieces, always_on;
  Tensor index;                                  // i32 [tokens, k]
  std::shared_ptr<const SegmentTable> segments;  // rows of each piece: the tokens that chose it
  TokenRows rows;                                // which token each row is of
  Tensor source;                                 // i64 [rows]: PieceRows::source

  PieceChoices(const Stream& stream, std::int64_t pieces, std::int64_t always_on, Tensor index,
               std::shared_ptr<const SegmentTable> segments, TokenRows rows);
};

/// y = x · Wᵀ, where of x the pieces count that a token uses: nothing is multiplied by zeros. The pieces that are
/// always on are one product; the chosen ones a grouped one over the tokens that chose each. x [tokens, hidden], W
/// [out, hidden], y [tokens, out].
struct ReadPieces {
  std::shared_ptr<const PieceChoices> choices;
  Parameter* weight;

  /// `d_rows`: dy of each row, made by backward for the weight gradient.
  struct Saved {
    Tensor x, d_rows;
    SegmentLayout piece, out;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {weight}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// y = z · Wᵀ, of which the pieces are made that a token uses, piece i times the token's factor i; the others are zero.
/// z [tokens, in], factors [tokens, pieces] in accumulator precision, W [hidden, in], y [tokens, hidden].
struct WritePieces {
  std::shared_ptr<const PieceChoices> choices;
  Parameter* weight;

  /// `dense`, `rows`: the pieces without factors; of their gradients d_dense, d_rows the weight gradient is made.
  struct Saved {
    Tensor z, factors, dense, rows, d_dense, d_rows;
    SegmentLayout in, piece;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& z, const Tensor& factors) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {weight}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// factors [tokens, pieces] of the answers' pieces, from the router's logits of the same shape: see factors_of().
struct FactorsOfPieces {
  Tensor index;  // i32 [tokens, k]
  std::int64_t always_on;
  PieceScaling scaling;

  struct Saved {
    Tensor logits;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& logits) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_factors) const;
};

/// load f64 [sequences, load_width(pieces)] of factors [tokens, pieces]: see PieceLoad. The tokens are those from
/// `first` on of so many sequences of seq_len.
struct LoadOfPieces {
  Tensor index;
  std::int64_t sequences, seq_len, first;

  struct Saved {
    Tensor factors;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& factors) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_load) const;
};

}  // namespace lyceum
