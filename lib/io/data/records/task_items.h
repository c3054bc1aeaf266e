#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lyceum {

/// A question with several choices, of which one is right. A model answers it with the choice that it finds most
/// probable after the context.
struct TaskItem {
  std::string context = {};               // may be empty
  std::vector<std::string> choices = {};  // at least two; none is empty
  std::int64_t answer = 0;                // index of the right choice
  std::string location = {};              // "FILE:LINE", for messages
  std::int64_t line = 0;                  // in its file, counted from 1
};

/// Reads a task: one record {"context": …, "choices": […], "answer": …} per line; other members are ignored. The file
/// may be compressed, and blank lines are left out. Throws a bad_input Error that names the line and the problem, or if
/// the file has no items.
std::vector<TaskItem> read_task(const std::filesystem::path& file);

}  // namespace lyceum
