#include "parallel/tensor/qk_norm.h"

#include "support/op_check.h"

namespace lyceum {
namespace {

TEST(QkNorm, HasTheGradientOfFiniteDifferences) {
  const ProcessGroup alone = ProcessGroup::self();
  for (const bool by_head : {true, false}) {
    const QkNormShape shape{.heads = 4, .kv_heads = 2, .head_dim = 3, .by_head = by_head};
    check_op(
        {.name = by_head ? "QkNormOfHeads" : "QkNormOfTokens",
         .inputs = {{3, shape.width()}},
         .add_parameters =
             [&](ParameterUnit& unit) {
               unit.add(whole_parameter("q", {shape.query_weights()}, {}, false));
               unit.add(whole_parameter("k", {shape.key_weights()}, {}, false));
             },
         .run = [&](Tape& tape, const std::vector<Variable>& x, const ParameterUnit& unit) -> std::vector<Variable> {
           return {tape.apply(QkNorm{parameter(unit, 0), parameter(unit, 1), shape, 1e-3, &alone}, x[0])};
         }});
  }
}

}  // namespace
}  // namespace lyceum
