#pragma once

#include <boost/program_options.hpp>

#include "apps/commands.h"

namespace lyceum {

/// Returns the options that `lyceum routing domains` and `flow` have in addition to those of the other actions.
boost::program_options::options_description routing_model_options();

/// Implement `lyceum routing domains` and `flow`, which run a checkpoint's model on any mesh; rank 0 prints and writes
/// files. `arguments`: those after the action. Collective over the session. Return the exit code.
int routing_domains(const MpiSession& session, const Arguments& arguments);
int routing_flow(const MpiSession& session, const Arguments& arguments);

}  // namespace lyceum
