#include "server/session/window.h"

#include <algorithm>
#include <utility>

namespace cpshard {

int64_t Step::bytes() const {
  int64_t bytes = 0;
  for (const Microbatch& microbatch : microbatches) bytes += microbatch.batch.bytes;
  return bytes;
}

bool Step::Begun() const {
  return std::any_of(microbatches.begin(), microbatches.end(),
                     [](const Microbatch& m) { return m.landed || m.push != 0; });
}

void Step::TakeBack(int64_t microbatch, bool was_last) {
  if (was_last) count.reset();
  if (microbatch == 0) declared.reset();
  while (!microbatches.empty() && !microbatches.back().landed && microbatches.back().push == 0) {
    microbatches.pop_back();
  }
}

Window::Window(int64_t replay_steps, int64_t ahead_steps, Budget& budget)
    : replay_steps_(replay_steps), ahead_steps_(ahead_steps), budget_(budget) {}

Window::~Window() { Seek(0); }

StepPtr Window::Find(int64_t step) const {
  if (step < floor_ || step >= granted_end()) return nullptr;
  return steps_[step - floor_];
}

void Window::Leave(Step& step) {
  step.in_window = false;
  if (step.pins > 0) return;
  budget_.GiveBack(*step.account, std::exchange(step.charged, 0));
}

void Window::Unpin(Step& step, Budget& budget) {
  if (--step.pins > 0 || step.in_window) return;
  budget.GiveBack(*step.account, std::exchange(step.charged, 0));
}

void Window::Seek(int64_t step) {
  for (const StepPtr& old : steps_) Leave(*old);
  steps_.clear();
  floor_ = frontier_ = step;
}

bool Window::SetFloor(int64_t floor) {
  if (floor <= floor_) return false;
  for (; floor_ < floor; ++floor_) {
    Leave(*steps_.front());
    steps_.pop_front();
  }
  return true;
}

void Window::Truncate(int64_t end) {
  while (granted_end() > end && !steps_.empty()) {
    Leave(*steps_.back());
    steps_.pop_back();
  }
}

StepPtr Window::Grant(int64_t pass, int64_t epoch, int64_t max_step_bytes) {
  if (granted_end() >= end() || !budget_.Take(*account_, max_step_bytes)) return nullptr;
  auto step = std::make_shared<Step>();
  step->step = granted_end();
  step->pass = pass;
  step->epoch = epoch;
  step->account = account_;
  step->charged = max_step_bytes;
  steps_.push_back(step);
  return step;
}

StepPtr Window::TakeBackShared() {
  if (steps_.empty() || account_->used <= account_->guarantee) return nullptr;
  const StepPtr last = steps_.back();
  if (last->complete || last->Begun()) return nullptr;
  Truncate(last->step);
  return last;
}

void Window::Complete(Step& step) {
  step.complete = true;
  const int64_t bytes = step.bytes();
  budget_.GiveBack(*step.account, step.charged - bytes);
  step.charged = bytes;
  while (frontier_ < granted_end() && steps_[frontier_ - floor_]->complete) ++frontier_;
}

}  // namespace cpshard
