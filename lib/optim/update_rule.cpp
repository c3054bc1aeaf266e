#include "optim/update_rule.h"

#include "optim/adamw_rule.h"
#include "optim/muon_rule.h"
#include "optim/update_tables.h"

namespace lyceum {

std::unique_ptr<UpdateRule> make_update_rule(const UpdateRuleInput& input) {
  return input.config.rule == UpdateRuleName::muon ? make_muon_rule(input) : make_adamw_rule(input);
}

std::int64_t update_table_bytes(std::int64_t shares, std::int64_t spans, std::int64_t slices) {
  return std::int64_t{sizeof(AdamW::Numbers)} + UpdateTables::bytes(shares, spans, slices);
}

std::int64_t digest_bytes(std::int64_t blocks) { return (blocks + 1) * std::int64_t{sizeof(std::uint32_t)}; }

}  // namespace lyceum
