#pragma once

#include <algorithm>
#include <vector>

namespace lyceum {

/// The list of operations in flight on the groups of one world. A wait for one of them advances all of them: an
/// operation of several rounds needs every rank to take its steps, even a rank that waits for another operation.
class Progress {
 public:
  class Task {
   public:
    /// Takes all steps that are possible without waiting, and stores errors. False: nothing is left to do.
    virtual bool advance() noexcept = 0;
    /// Called when an operation of the world was abandoned. Must end everything that waits for other ranks, such as
    /// kernels on a device.
    virtual void give_up() noexcept {}

   protected:
    ~Task() = default;
  };

  void add(Task& task) { tasks_.push_back(&task); }
  void remove(Task& task) { std::erase(tasks_, &task); }
  /// Advances all tasks, and removes those that have nothing left to do.
  void poll() {
    std::erase_if(tasks_, [](Task* task) { return !task->advance(); });
  }
  /// Calls give_up() of all tasks.
  void give_up() {
    for (Task* task : tasks_) task->give_up();
  }

 private:
  std::vector<Task*> tasks_;  // in the order in which they were started
};

}  // namespace lyceum
