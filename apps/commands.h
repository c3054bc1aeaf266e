#pragma once

#include <string>
#include <vector>

#include "parallel/comm/mpi_session.h"

namespace lyceum {

/// The arguments after a command's name.
using Arguments = std::vector<std::string>;

/// Implement the commands. All ranks call them. Return the exit code; errors are thrown as Error.
int train_command(const MpiSession& session, const Arguments& arguments);
int plan_command(const MpiSession& session, const Arguments& arguments);
int eval_command(const MpiSession& session, const Arguments& arguments);
int generate_command(const MpiSession& session, const Arguments& arguments);
int convert_command(const MpiSession& session, const Arguments& arguments);
int routing_command(const MpiSession& session, const Arguments& arguments);
/// Implement the commands that need no other rank: only rank 0 of a job calls them. Return and throw as above.
int tokenize_command(const Arguments& arguments);
int checkpoint_command(const Arguments& arguments);
int compare_command(const Arguments& arguments);
int completion_command(const Arguments& arguments);

}  // namespace lyceum
