#pragma once

#include <algorithm>
#include <vector>

namespace lyceum {

/// The operations under way on groups that come from one world. Whoever waits for one of them moves all of them on: an
/// operation of several steps needs every rank to take them, also one that waits for something else meanwhile.
class Progress {
 public:
  class Task {
   public:
    /// Takes the next steps that can be taken without waiting; keeps its errors. False: nothing is left to do.
    virtual bool advance() noexcept = 0;
    /// An operation of the world was given up: what waits for other ranks, on a device say, is to end.
    virtual void give_up() noexcept {}

   protected:
    ~Task() = default;
  };

  void add(Task& task) { tasks_.push_back(&task); }
  void remove(Task& task) { std::erase(tasks_, &task); }
  void poll() {
    std::erase_if(tasks_, [](Task* task) { return !task->advance(); });
  }
  void give_up() {
    for (Task* task : tasks_) task->give_up();
  }

 private:
  std::vector<Task*> tasks_;  // in the order in which they were started
};

}  // namespace lyceum
