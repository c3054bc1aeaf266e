#include <gtest/gtest.h>

#include "autograd/activation.h"
#include "autograd/attention.h"
#include "autograd/cast.h"
#include "autograd/copies.h"
#include "autograd/dropout.h"
#include "autograd/embedding.h"
#include "autograd/expert_bank.h"
#include "autograd/grouped_linear.h"
#include "autograd/joined_norms.h"
#include "autograd/latent_attention.h"
#include "autograd/linear.h"
#include "autograd/monarch.h"
#include "autograd/noise.h"
#include "autograd/rms_norm.h"
#include "autograd/routing.h"
#include "autograd/row_gate.h"
#include "autograd/row_penalty.h"
#include "autograd/sub_dimension_factors.h"
#include "autograd/sub_dimensions.h"
#include "autograd/sum.h"
#include "autograd/sum_of_squares.h"
#include "core/copy.h"
#include "kernels/rope.h"
#include "kernels/router.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

using Inputs = std::vector<Variable>;

void add_matrix(ParameterUnit& unit, std::int64_t rows, std::int64_t cols) {
  unit.add(whole_parameter("w" + std::to_string(unit.parameters().size()), {rows, cols}, 1.0, true));
}

Tensor rope_table(const Stream& stream, std::int64_t positions, std::int64_t dim, const RopeScaling& scaling = {}) {
  const Tensor table = Tensor::empty(stream, DType::f64, {positions, dim});
  launch(stream, RopeTable<double>{.table = table.matrix<double>(), .base = 100, .scaling = scaling});
  return table;
}

std::shared_ptr<const std::vector<Parameter*>> all_parameters(const ParameterUnit& unit) {
  std::vector<Parameter*> all;
  for (const auto& parameter : unit.parameters()) all.push_back(parameter.get());
  return std::make_shared<const std::vector<Parameter*>>(std::move(all));
}

/// `scaled`: rotary attention in which two neighbours of the four columns of a head are rotated and scaled.
enum AttentionKind { rotary, sticks, scaled };

Tensor rope_table(const Stream& stream, std::int64_t positions, std::int64_t dim, AttentionKind kind) {
  if (kind == rotary) return rope_table(stream, positions, dim);
  return rope_table(stream, positions, dim / 2,
                    {.kind = RopeScalingKind::linear, .factor = 2, .attention_factor = 1.5});
}
RopeLayout layout_of(AttentionKind kind) { return kind == scaled ? RopeLayout::interleaved : RopeLayout::half; }

OpCase split_attention_case(const std::string& name, std::int64_t heads, std::int64_t kv_heads, AttentionKind kind) {
  const std::int64_t seq_len = 5, dim = 4;
  return {
      .name = name,
      .inputs = {{2 * seq_len, heads * dim}, {2 * seq_len, 2 * kv_heads * dim}},
      .run = [=](Tape& tape, const Inputs& x, const ParameterUnit&) -> Inputs {
        if (kind == sticks) {
          return {tape.apply(SplitProjections<StickBreakingAttention>{{seq_len, heads, kv_heads, dim}}, x[0], x[1])};
        }
        const Tensor table = rope_table(tape.stream(), seq_len, dim, kind);
        return {tape.apply(SplitProjections<RotaryAttention>{{.seq_len = seq_len,
                                                              .heads = heads,
                                                              .kv_heads = kv_heads,
                                                              .head_dim = dim,
                                                              .rope_table = table,
                                                              .rope_layout = layout_of(kind)}},
                           x[0], x[1])};
      }};
}

OpCase attention_case(const std::string& name, std::int64_t heads, std::int64_t kv_heads, AttentionKind kind = rotary) {
  const std::int64_t seq_len = 5, dim = 4;
  return {.name = name,
          .inputs = {{2 * seq_len, (heads + 2 * kv_heads) * dim}},
          .run = [=](Tape& tape, const Inputs& x, const ParameterUnit&) -> Inputs {
            if (kind == sticks) return {tape.apply(StickBreakingAttention{seq_len, heads, kv_heads, dim}, x[0])};
            const Tensor table = rope_table(tape.stream(), seq_len, dim, kind);
            return {tape.apply(RotaryAttention{.seq_len = seq_len,
                                               .heads = heads,
                                               .kv_heads = kv_heads,
                                               .head_dim = dim,
                                               .rope_table = table,
                                               .rope_layout = layout_of(kind)},
                               x[0])};
          }};
}

/// Attention with a window of three tokens, and with sinks.
OpCase windowed_attention_case(const std::string& name, bool sinks, bool window) {
  const std::int64_t seq_len = 5, heads = 4, kv_heads = 2, dim = 4;
  return {.name = name,
          .inputs = {{2 * seq_len, (heads + 2 * kv_heads) * dim}},
          .add_parameters =
              [=](ParameterUnit& unit) {
                if (sinks) unit.add(whole_parameter("sinks", {heads}, 1.0, false));
              },
          .run = [=](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
            return {tape.apply(RotaryAttention{.seq_len = seq_len,
                                               .heads = heads,
                                               .kv_heads = kv_heads,
                                               .head_dim = dim,
                                               .rope_table = rope_table(tape.stream(), seq_len, dim),
                                               .window = window ? 3 : 0,
                                               .sinks = sinks ? parameter(unit, 0) : nullptr},
                               x[0])};
          }};
}

/// Latent attention of three heads with 4 + 2 columns of queries and keys and 3 of values.
OpCase latent_attention_case(const std::string& name, RopeLayout layout, std::int64_t window) {
  const std::int64_t seq_len = 5;
  const LatentHeads heads{.heads = 3, .nope_dim = 4, .rope_dim = 2, .value_dim = 3};
  return {.name = name,
          .inputs = {{2 * seq_len, heads.heads * heads.head_dim()},
                     {2 * seq_len, heads.heads * heads.up_dim()},
                     {2 * seq_len, heads.rope_dim}},
          .run = [=](Tape& tape, const Inputs& x, const ParameterUnit&) -> Inputs {
            return {tape.apply(LatentAttention{.heads = heads,
                                               .seq_len = seq_len,
                                               .scale = 0.4,
                                               .rope_table = rope_table(tape.stream(), seq_len, heads.rope_dim),
                                               .rope_layout = layout,
                                               .window = window},
                               x[0], x[1], x[2])};
          }};
}

std::shared_ptr<const std::vector<ExpertBank::Expert>> experts_of(const ParameterUnit& unit) {
  auto experts = std::make_shared<std::vector<ExpertBank::Expert>>();
  for (std::size_t e = 0; e < unit.parameters().size() / 2; ++e) {
    experts->push_back({.in = parameter(unit, 2 * e), .down = parameter(unit, 2 * e + 1)});
  }
  return experts;
}

/// A bank of experts of the given widths; expert e has rows[e] rows.
OpCase bank_case(const std::string& name, const ActivationFunction& activation, const std::vector<std::int64_t>& widths,
                 const std::vector<std::int64_t>& rows) {
  const std::int64_t hidden = 3;
  return {.name = name,
          .inputs = {{SegmentTable(CpuStream(1), rows).total(), hidden}},
          .add_parameters =
              [=](ParameterUnit& unit) {
                for (const std::int64_t width : widths) {
                  add_matrix(unit, inputs_of(activation.kind) * width, hidden);
                  add_matrix(unit, hidden, width);
                }
              },
          .run = [=](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
            const auto table = std::make_shared<SegmentTable>(tape.stream(), rows);
            return {tape.apply(ExpertBank{activation, experts_of(unit), table}, x[0])};
          }};
}

// The limit clamps some inputs of tests, and no input is so close to it that a finite difference crosses it.
constexpr ActivationFunction clamped{Activation::clamped_swiglu, 1.702, 0.65};

/// The columns of the outputs of biased_case() that have a bias: a slice, as a rank of several has it.
constexpr Range biased_columns{1, 2};

/// The experts of a unit in which each has four parameters.
std::shared_ptr<const std::vector<ExpertBank::Expert>> biased_experts_of(const ParameterUnit& unit) {
  auto experts = std::make_shared<std::vector<ExpertBank::Expert>>();
  for (std::size_t p = 0; p < unit.parameters().size(); p += 4) {
    experts->push_back({.in = parameter(unit, p),
                        .down = parameter(unit, p + 1),
                        .in_bias = parameter(unit, p + 2),
                        .down_bias = parameter(unit, p + 3),
                        .down_columns = biased_columns});
  }
  return experts;
}
void add_biased_experts(ParameterUnit& unit, const ActivationFunction& activation,
                        const std::vector<std::int64_t>& widths) {
  for (const std::int64_t width : widths) {
    const std::int64_t inner = inputs_of(activation.kind) * width;
    add_matrix(unit, inner, 3);
    add_matrix(unit, 3, width);
    unit.add(whole_parameter("in bias", {inner}, {}, false));
    unit.add(whole_parameter("down bias", {biased_columns.count}, {}, false));
  }
}

/// A bank of experts with biases, as bank_case().
OpCase biased_case(const std::string& name, const ActivationFunction& activation,
                   const std::vector<std::int64_t>& widths, const std::vector<std::int64_t>& rows) {
  return {.name = name,
          .inputs = {{SegmentTable(CpuStream(1), rows).total(), 3}},
          .add_parameters = [=](ParameterUnit& unit) { add_biased_experts(unit, activation, widths); },
          .run = [=](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
            const auto table = std::make_shared<SegmentTable>(tape.stream(), rows);
            return {tape.apply(ExpertBank{activation, biased_experts_of(unit), table}, x[0])};
          }};
}

/// A grouped linear layer with a matrix [4, 3] per expert; expert e has rows[e] rows.
OpCase grouped_case(const std::string& name, const std::vector<std::int64_t>& rows) {
  return {.name = name,
          .inputs = {{SegmentTable(CpuStream(1), rows).total(), 3}},
          .add_parameters =
              [=](ParameterUnit& unit) {
                for (std::size_t e = 0; e < rows.size(); ++e) add_matrix(unit, 4, 3);
              },
          .run = [=](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
            const auto table = std::make_shared<SegmentTable>(tape.stream(), rows);
            return {tape.apply(GroupedLinear{all_parameters(unit), table}, x[0])};
          }};
}

DropoutSource dropout_source(const Stream& stream, std::int64_t block) {
  const Tensor step = tensor_of(stream, {1}, std::vector<double>{7});
  return {.seed = 3, .site = 2, .first = 11, .step = step, .block = block, .seq_len = 5};
}

/// Routes 6 tokens over 5 experts. Results: gates and, if `sequences` > 0, load.
OpCase route_case(const std::string& name, const Route& route) {
  return {.name = name, .inputs = {{6, 5}}, .run = [=](Tape& tape, const Inputs& x, const ParameterUnit&) -> Inputs {
            const auto [gates, index, load] = tape.apply(route, x[0]);
            return route.sequences ? Inputs{gates, load} : Inputs{gates};
          }};
}

/// Segments whose rows are copies of three tokens with `top_k` choices each. `rows` add up to 3 · top_k, or less if the
/// last choices have no row.
struct Copies {
  std::shared_ptr<const SegmentTable> table;
  TokenRows rows;
};
Copies copies_of(const Stream& stream, const std::vector<std::int64_t>& rows, std::int64_t top_k) {
  const auto table = std::make_shared<SegmentTable>(stream, rows);
  std::vector<std::int64_t> pair_of_row(static_cast<std::size_t>(table->total()), -1);
  std::vector<std::int64_t> row_of_pair(static_cast<std::size_t>(3 * top_k), -1);
  std::int64_t next = 0;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    for (std::int64_t r = 0; r < rows[e]; ++r, ++next) {
      const std::int64_t pair = next % 3 * top_k + next / 3, row = table->begin_on_host()[e] + r;
      pair_of_row[static_cast<std::size_t>(row)] = pair;
      row_of_pair[static_cast<std::size_t>(pair)] = row;
    }
  }
  const auto numbers = [&](const std::vector<std::int64_t>& values) {
    return tensor_of(stream, {std::ssize(values)}, values);
  };
  return {table, {numbers(pair_of_row), numbers(row_of_pair), top_k}};
}

OpCase grouped_copies_case(const std::string& name, const std::vector<std::int64_t>& rows, std::int64_t top_k) {
  OpCase op = grouped_case(name, rows);
  op.inputs = {{3, 3}};
  op.run = [=](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
    const auto [table, copies] = copies_of(tape.stream(), rows, top_k);
    return {tape.apply(GroupedLinear{all_parameters(unit), table, copies}, x[0])};
  };
  return op;
}

/// A bank whose rows are copies of tokens, and the gate-weighted sum of its outputs.
OpCase gated_case(const std::string& name, const ActivationFunction& activation,
                  const std::vector<std::int64_t>& widths, const std::vector<std::int64_t>& rows, std::int64_t top_k) {
  OpCase op = bank_case(name, activation, widths, rows);
  op.inputs = {{3, 3}, {3, top_k}};
  op.run = [=](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
    const auto [table, copies] = copies_of(tape.stream(), rows, top_k);
    return {tape.apply(GatedBank{{activation, experts_of(unit), table}, copies}, x[0], x[1])};
  };
  return op;
}

OpCase biased_gated_case(const std::string& name, const ActivationFunction& activation,
                         const std::vector<std::int64_t>& widths, const std::vector<std::int64_t>& rows,
                         std::int64_t top_k) {
  OpCase op = biased_case(name, activation, widths, rows);
  op.inputs = {{3, 3}, {3, top_k}};
  op.run = [=](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
    const auto [table, copies] = copies_of(tape.stream(), rows, top_k);
    return {tape.apply(GatedBank{{activation, biased_experts_of(unit), table}, copies}, x[0], x[1])};
  };
  return op;
}

/// Three tokens with four sub-dimensions of width 3. Each uses the first `always_on` ones and the two that it chose.
std::shared_ptr<const SubDimensionChoices> sub_dimension_choices(const Stream& stream, std::int64_t always_on) {
  const std::vector<std::vector<std::int32_t>> chosen =
      always_on ? std::vector<std::vector<std::int32_t>>{{3, 1}, {1, 3}, {2, 3}}
                : std::vector<std::vector<std::int32_t>>{{3, 0}, {1, 3}, {0, 3}};
  std::vector<std::int64_t> rows(4, 0);
  std::vector<std::int32_t> index;
  for (const auto& of_token : chosen) {
    for (const std::int32_t sub_dimension : of_token) {
      index.push_back(sub_dimension);
      ++rows[static_cast<std::size_t>(sub_dimension)];
    }
  }
  auto table = std::make_shared<SegmentTable>(stream, rows);
  std::vector<std::int64_t> next(table->begin_on_host().begin(), table->begin_on_host().end());
  std::vector<std::int64_t> pair_of_row(static_cast<std::size_t>(table->total()), -1), row_of_pair;
  for (std::size_t pair = 0; pair < index.size(); ++pair) {
    const std::int64_t row = next[static_cast<std::size_t>(index[pair])]++;
    pair_of_row[static_cast<std::size_t>(row)] = static_cast<std::int64_t>(pair);
    row_of_pair.push_back(row);
  }
  const TokenRows copies{tensor_of(stream, {std::ssize(pair_of_row)}, pair_of_row),
                         tensor_of(stream, {std::ssize(row_of_pair)}, row_of_pair), 2};
  return std::make_shared<const SubDimensionChoices>(stream, 4, always_on, i32_tensor(stream, {3, 2}, index), table,
                                                     copies);
}

void add_piece_cases(std::vector<OpCase>& cases) {
  cases.push_back({.name = "ScaleSubDimensions",
                   .inputs = {{3, 12}, {3, 4}},
                   .run = [](Tape& tape, const Inputs& x, const ParameterUnit&) -> Inputs {
                     return {tape.apply(ScaleSubDimensions{}, x[0], x[1])};
                   }});
  const auto unchosen = [](const Stream& stream) {
    return std::make_shared<const SubDimensionChoices>(stream, 4, 3, 3);
  };
  cases.push_back({.name = "ReadSubDimensionsAllAlwaysOn",
                   .inputs = {{3, 12}},
                   .add_parameters = [](ParameterUnit& unit) { add_matrix(unit, 5, 12); },
                   .run = [=](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
                     return {tape.apply(ReadSubDimensions{unchosen(tape.stream()), parameter(unit, 0)}, x[0])};
                   }});
  cases.push_back({.name = "WriteSubDimensionsAllAlwaysOn",
                   .inputs = {{3, 5}, {3, 4}},
                   .add_parameters = [](ParameterUnit& unit) { add_matrix(unit, 12, 5); },
                   .run = [=](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
                     return {tape.apply(WriteSubDimensions{unchosen(tape.stream()), parameter(unit, 0)}, x[0], x[1])};
                   }});
  for (const std::int64_t always_on : {0, 1}) {
    const std::string some = always_on ? "SomeAlwaysOn" : "";
    cases.push_back(
        {.name = "ReadSubDimensions" + some,
         .inputs = {{3, 12}},
         .add_parameters = [](ParameterUnit& unit) { add_matrix(unit, 5, 12); },
         .run = [=](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
           return {tape.apply(ReadSubDimensions{sub_dimension_choices(tape.stream(), always_on), parameter(unit, 0)},
                              x[0])};
         }});
    cases.push_back(
        {.name = "WriteSubDimensions" + some,
         .inputs = {{3, 5}, {3, 4}},
         .add_parameters = [](ParameterUnit& unit) { add_matrix(unit, 12, 5); },
         .run = [=](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
           return {tape.apply(WriteSubDimensions{sub_dimension_choices(tape.stream(), always_on), parameter(unit, 0)},
                              x[0], x[1])};
         }});
  }
  for (const auto& [name, scaling] : {std::pair{"Restore", SubDimensionScaling::restore},
                                      {"Printed", SubDimensionScaling::printed},
                                      {"None", SubDimensionScaling::none},
                                      {"Ones", SubDimensionScaling::ones}}) {
    cases.push_back({.name = std::string("FactorsOfSubDimensions") + name,
                     .inputs = {{3, 4}},
                     .run = [scaling](Tape& tape, const Inputs& x, const ParameterUnit&) -> Inputs {
                       const Tensor index = i32_tensor(tape.stream(), {3, 2}, {3, 1, 1, 3, 2, 3});
                       return {tape.apply(FactorsOfSubDimensions{index, 1, scaling}, x[0])};
                     }});
  }
  cases.push_back(
      {.name = "LoadOfSubDimensions",
       .inputs = {{5, 4}},
       .run = [](Tape& tape, const Inputs& x, const ParameterUnit&) -> Inputs {
         const Tensor index = i32_tensor(tape.stream(), {5, 1}, {3, 1, 1, 2, 3});
         const Variable factors = tape.apply(FactorsOfSubDimensions{index, 1, SubDimensionScaling::restore}, x[0]);
         return {tape.apply(LoadOfSubDimensions{index, 3, 3, 2}, factors)};
       }});
  cases.push_back({.name = "Monarch",
                   .inputs = {{4, 6}},
                   .add_parameters =
                       [](ParameterUnit& unit) {
                         for (const char* name : {"in", "out"}) unit.add(whole_parameter(name, {2, 3, 3}, 1.0, true));
                       },
                   .run = [](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
                     return {tape.apply(Monarch{parameter(unit, 0), parameter(unit, 1)}, x[0])};
                   }});
  for (const auto& [name, function] : {std::pair<const char*, ActivationFunction>{"ActivateSwiglu", Activation::swiglu},
                                       {"ActivateGelu", Activation::gelu},
                                       {"ActivateClampedSwiglu", clamped}}) {
    cases.push_back({.name = name,
                     .inputs = {{5, 6}},
                     .run = [function](Tape& tape, const Inputs& x, const ParameterUnit&) -> Inputs {
                       return {tape.apply(Activate{function}, x[0])};
                     }});
  }
}

std::vector<OpCase> all_cases() {
  std::vector<OpCase> cases;
  cases.push_back({.name = "Linear",
                   .inputs = {{5, 3}},
                   .add_parameters = [](ParameterUnit& unit) { add_matrix(unit, 4, 3); },
                   .run = [](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
                     return {tape.apply(Linear{parameter(unit, 0)}, x[0])};
                   }});
  cases.push_back({.name = "LinearWithBias",
                   .inputs = {{5, 3}},
                   .add_parameters =
                       [](ParameterUnit& unit) {
                         add_matrix(unit, 4, 3);
                         unit.add(whole_parameter("bias", {4}, {}, false));
                       },
                   .run = [](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
                     return {tape.apply(Linear{parameter(unit, 0), parameter(unit, 1)}, x[0])};
                   }});
  cases.push_back({.name = "LinearWithASliceOfABias",
                   .inputs = {{5, 3}},
                   .add_parameters =
                       [](ParameterUnit& unit) {
                         add_matrix(unit, 4, 3);
                         unit.add(whole_parameter("bias", {2}, {}, false));
                       },
                   .run = [](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
                     return {tape.apply(Linear{parameter(unit, 0), parameter(unit, 1), {1, 2}}, x[0])};
                   }});
  cases.push_back({.name = "PreciseLinearWithBias",
                   .inputs = {{5, 3}},
                   .add_parameters =
                       [](ParameterUnit& unit) {
                         add_matrix(unit, 7, 3);
                         unit.add(whole_parameter("bias", {7}, {}, false));
                       },
                   .run = [](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
                     return {tape.apply(PreciseLinear{parameter(unit, 0), parameter(unit, 1)}, x[0])};
                   }});
  cases.push_back({.name = "PreciseLinear",
                   .inputs = {{5, 3}},
                   .add_parameters = [](ParameterUnit& unit) { add_matrix(unit, 7, 3); },
                   .run = [](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
                     return {tape.apply(PreciseLinear{parameter(unit, 0)}, x[0])};
                   }});
  cases.push_back({.name = "RowPenalty",
                   .inputs = {},
                   .add_parameters = [](ParameterUnit& unit) { add_matrix(unit, 5, 3); },
                   .run = [](Tape& tape, const Inputs&, const ParameterUnit& unit) -> Inputs {
                     return {tape.apply(RowPenalty{.weight = parameter(unit, 0), .first = 2, .factor = 0.7})};
                   }});
  cases.push_back({.name = "SumOfSquares",
                   .inputs = {},
                   .add_parameters = [](ParameterUnit& unit) { add_matrix(unit, 5, 3); },
                   .run = [](Tape& tape, const Inputs&, const ParameterUnit& unit) -> Inputs {
                     return {tape.apply(SumOfSquares{parameter(unit, 0)})};
                   }});
  cases.push_back({.name = "SumNorm",
                   .inputs = {{4, 6}, {4, 6}},
                   .add_parameters = [](ParameterUnit& unit) { unit.add(whole_parameter("norm", {6}, {}, false)); },
                   .run = [](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
                     const auto [sum, y] = tape.apply(SumNorm{RmsNorm{parameter(unit, 0), 1e-3}}, x[0], x[1]);
                     return {sum, y};
                   }});
  cases.push_back(
      {.name = "JoinedNorms",
       .inputs = {{4, 6}, {4, 6}},
       .add_parameters =
           [](ParameterUnit& unit) {
             unit.add(whole_parameter("a", {6}, {}, false));
             unit.add(whole_parameter("b", {6}, {}, false));
           },
       .run = [](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
         return {tape.apply(JoinedNorms{{parameter(unit, 0), 1e-3}, {parameter(unit, 1), 1e-1}}, x[0], x[1])};
       }});
  cases.push_back({.name = "RmsNorm",
                   .inputs = {{4, 6}},
                   .add_parameters = [](ParameterUnit& unit) { unit.add(whole_parameter("norm", {6}, {}, false)); },
                   .run = [](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
                     return {tape.apply(RmsNorm{parameter(unit, 0), 1e-3}, x[0])};
                   }});
  cases.push_back({.name = "EmbeddingPart",
                   .inputs = {},
                   .add_parameters = [](ParameterUnit& unit) { add_matrix(unit, 2, 3); },
                   .run = [](Tape& tape, const Inputs&, const ParameterUnit& unit) -> Inputs {
                     const Tensor tokens = i32_tensor(tape.stream(), {5}, {1, 5, 1, 0, 2});
                     return {
                         tape.apply(Embedding{.table = parameter(unit, 0), .tokens = tokens, .first = 1, .vocab = 6})};
                   }});
  cases.push_back({.name = "Embedding",
                   .inputs = {},
                   .add_parameters = [](ParameterUnit& unit) { add_matrix(unit, 6, 3); },
                   .run = [](Tape& tape, const Inputs&, const ParameterUnit& unit) -> Inputs {
                     const Tensor tokens = i32_tensor(tape.stream(), {5}, {1, 5, 1, 0, 1});
                     return {tape.apply(Embedding{parameter(unit, 0), tokens})};
                   }});
  cases.push_back(
      {.name = "RowGate", .inputs = {{4, 3}, {4, 1}}, .run = [](Tape& tape, const Inputs& x, const ParameterUnit&) {
         return Inputs{tape.apply(RowGate{}, x[0], x[1])};
       }});
  cases.push_back({.name = "Sum",
                   .inputs = {{3, 2}, {3, 2}},
                   .run = [](Tape& tape, const Inputs& x, const ParameterUnit&) -> Inputs {
                     const Variable y = tape.apply(Sum{}, x[0], x[1]);
                     return {tape.apply(Sum{}, tape.apply(Sum{}, y, x[0]), y)};  // uses every input several times
                   }});
  cases.push_back({.name = "Relu", .inputs = {{5, 7}}, .run = [](Tape& tape, const Inputs& x, const ParameterUnit&) {
                     return Inputs{tape.apply(Relu{}, x[0])};
                   }});
  cases.push_back(
      {.name = "NoisyLogits", .inputs = {{5, 6}, {5, 6}}, .run = [](Tape& tape, const Inputs& x, const ParameterUnit&) {
         const Tensor step = tensor_of(tape.stream(), {1}, std::vector<double>{7});
         return Inputs{tape.apply(NoisyLogits{.seed = 3, .layer = 2, .first = 11, .step = step}, x[0], x[1])};
       }});
  for (const std::int64_t block : {1, 3}) {
    cases.push_back({.name = block > 1 ? "DropoutOfBlocks" : "Dropout",
                     .inputs = {{12, 7}},
                     .run = [=](Tape& tape, const Inputs& x, const ParameterUnit&) {
                       return Inputs{tape.apply(Dropout{dropout_source(tape.stream(), block), 0.4}, x[0])};
                     }});
  }
  const auto add_rate = [](ParameterUnit& unit) { unit.add(whole_parameter("logit", {1}, 1.0, false)); };
  cases.push_back(
      {.name = "ConcreteDropout",
       .inputs = {{12, 7}},
       .add_parameters = add_rate,
       .run = [](Tape& tape, const Inputs& x, const ParameterUnit& unit) {
         return Inputs{tape.apply(ConcreteDropout{dropout_source(tape.stream(), 1), parameter(unit, 0)}, x[0])};
       }});
  cases.push_back(
      {.name = "RegulariseDropout",
       .inputs = {{1}},
       .add_parameters = add_rate,
       .run = [](Tape& tape, const Inputs& x, const ParameterUnit& unit) {
         return Inputs{
             tape.apply(RegulariseDropout{.logit = parameter(unit, 0), .norm_factor = 0.3, .entropy_factor = 2}, x[0])};
       }});
  cases.push_back(route_case("Route", {.k = 2}));
  cases.push_back(route_case("RouteOne", {.k = 1, .sequences = 3, .seq_len = 2}));
  cases.push_back(route_case("RouteAll", {.k = 5, .rule = Gates::renormalized, .sequences = 1, .seq_len = 6}));
  cases.push_back(route_case("RouteOnes", {.k = 2, .rule = Gates::ones, .sequences = 2, .seq_len = 3}));
  cases.push_back(route_case("RouteSigmoid", {.k = 2, .scores = Scores::sigmoid, .sequences = 2, .seq_len = 3}));
  cases.push_back(
      route_case("RouteSqrtSoftplus", {.k = 2, .scores = Scores::sqrt_softplus, .sequences = 2, .seq_len = 3}));
  cases.push_back(
      route_case("RouteSigmoidRenormalized", {.k = 3, .scores = Scores::sigmoid, .rule = Gates::renormalized}));
  cases.push_back(route_case("RouteAlwaysOn", {.k = 2, .always_on = 2, .sequences = 2, .seq_len = 3}));
  cases.push_back(route_case("RouteEven", {.k = 2, .even = true, .sequences = 2, .seq_len = 3}));
  cases.push_back(
      route_case("RouteCutSequences", {.k = 3, .rule = Gates::renormalized, .sequences = 3, .seq_len = 4, .first = 3}));
  cases.push_back(
      {.name = "CopyTokens", .inputs = {{4, 3}, {4, 2}}, .run = [](Tape& tape, const Inputs& x, const ParameterUnit&) {
         const Tensor index = i32_tensor(tape.stream(), {4, 2}, {5, 6, 0, 5, -1, 6, 4, 3});
         return Inputs{tape.apply(CopyTokens{index, 5}, x[0], x[1])};
       }});
  cases.push_back(attention_case("RotaryAttention", 2, 2));
  cases.push_back(attention_case("RotaryAttentionGroupedQueries", 4, 2));
  cases.push_back(attention_case("RotaryAttentionOneKeyHead", 3, 1));
  cases.push_back(attention_case("ScaledRotaryAttention", 4, 2, scaled));
  cases.push_back(split_attention_case("SplitRotaryAttention", 4, 2, rotary));
  cases.push_back(split_attention_case("SplitScaledRotaryAttention", 4, 2, scaled));
  cases.push_back(windowed_attention_case("RotaryAttentionInAWindow", false, true));
  cases.push_back(windowed_attention_case("RotaryAttentionWithSinks", true, false));
  cases.push_back(windowed_attention_case("RotaryAttentionInAWindowWithSinks", true, true));
  cases.push_back(latent_attention_case("LatentAttention", RopeLayout::interleaved, 0));
  cases.push_back(latent_attention_case("LatentAttentionInAWindow", RopeLayout::half, 3));
  cases.push_back({.name = "SplitLatent",
                   .inputs = {{4, 7}},
                   .add_parameters = [](ParameterUnit& unit) { unit.add(whole_parameter("norm", {5}, {}, false)); },
                   .run = [](Tape& tape, const Inputs& x, const ParameterUnit& unit) -> Inputs {
                     const auto [latent, key] = tape.apply(SplitLatent{parameter(unit, 0), 1e-3}, x[0]);
                     return {latent, key};
                   }});
  cases.push_back(attention_case("StickBreakingAttention", 2, 2, sticks));
  cases.push_back(attention_case("StickBreakingAttentionGroupedQueries", 4, 2, sticks));
  cases.push_back(split_attention_case("SplitStickBreakingAttention", 4, 2, sticks));
  add_piece_cases(cases);
  cases.push_back(grouped_case("GroupedLinear", {3, 0, 33}));
  cases.push_back(grouped_copies_case("GroupedLinearOfCopies", {4, 0, 2}, 2));
  for (const auto& [name, activation] : {std::pair{"Swiglu", Activation::swiglu}, {"Gelu", Activation::gelu}}) {
    const std::string bank = std::string("ExpertBank") + name;
    cases.push_back(bank_case(bank, activation, {4, 4}, {3, 2}));
    cases.push_back(bank_case(bank + "UnevenWidthsOneEmpty", activation, {5, 2, 1}, {2, 0, 1}));
    const std::string gated = std::string("GatedBank") + name;
    cases.push_back(gated_case(gated, activation, {4, 2, 3}, {4, 0, 2}, 2));
    cases.push_back(gated_case(gated + "ChoicesWithoutRows", activation, {4, 2}, {3, 2}, 3));
  }
  for (const auto& [name, function] : {std::pair<const char*, ActivationFunction>{"Swiglu", Activation::swiglu},
                                       {"Gelu", Activation::gelu},
                                       {"ClampedSwiglu", clamped}}) {
    cases.push_back(biased_case(std::string("ExpertBankWithBiases") + name, function, {5, 2, 1}, {2, 0, 1}));
    cases.push_back(biased_gated_case(std::string("GatedBankWithBiases") + name, function, {4, 2, 3}, {4, 0, 2}, 2));
  }
  cases.push_back(biased_gated_case("GatedBankWithBiasesChoicesWithoutRows", Activation::swiglu, {4, 2}, {3, 2}, 3));
  cases.push_back(bank_case("ExpertBankClampedSwiglu", clamped, {4, 4}, {3, 2}));
  for (OpCase& op : cases) {
    if (op.name.starts_with("ExpertBank") || op.name.starts_with("GatedBank")) op.input_scale = 0.5;
  }
  return cases;
}

class Operations : public testing::TestWithParam<OpCase> {};
TEST_P(Operations, AgreeWithFiniteDifferences) { check_op(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Autograd, Operations, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lyceum
