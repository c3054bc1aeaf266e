#pragma once

#include <boost/program_options.hpp>

#include "apps/commands.h"

namespace lyceum {

/// What `lyceum routing domains` and `flow` take besides what other actions do.
boost::program_options::options_description routing_model_options();

/// These run a checkpoint's model, on any mesh; the arguments behind the action.
int routing_domains(const MpiSession& session, const Arguments& arguments);
int routing_flow(const MpiSession& session, const Arguments& arguments);

}  // namespace lyceum
