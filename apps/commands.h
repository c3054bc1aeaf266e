#pragma once

#include <string>
#include <vector>

#include "parallel/comm/mpi_session.h"

namespace lyceum {

/// Implementations of the commands. Each takes the arguments after the command's name and returns the exit code. Errors
/// are thrown as Error.
using Arguments = std::vector<std::string>;

int train_command(const MpiSession& session, const Arguments& arguments);
int plan_command(const MpiSession& session, const Arguments& arguments);
int eval_command(const MpiSession& session, const Arguments& arguments);
int generate_command(const MpiSession& session, const Arguments& arguments);
int convert_command(const MpiSession& session, const Arguments& arguments);
int routing_command(const MpiSession& session, const Arguments& arguments);
// These commands run as one process, without ranks.
int tokenize_command(const Arguments& arguments);
int checkpoint_command(const Arguments& arguments);
int completion_command(const Arguments& arguments);

}  // namespace lyceum
