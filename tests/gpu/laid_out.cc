#include "tests/gpu/laid_out.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/plan/status_macros.h"
#include "tests/gpu/anchors.h"
#include "tests/gpu/footprint.h"

namespace cpshard {
namespace {

constexpr int64_t kBetween = 64;  // bytes before each block at least, and behind the last

struct Block {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  bool is_written = false;
  int64_t at = 0;  // in the pool's buffer
  int64_t size() const { return end - begin; }
};

class Layout {
 public:
  explicit Layout(absl::Span<const Task> tasks) {
    for (const Task& task : tasks) {
      footprints_.push_back(FootprintOfTask(task));
      const auto& [source, dests] = footprints_.back();
      Add(SourceOf(task), source, false);
      for (size_t i = 0; i < dests.size(); ++i) Add(DestOf(task, i), dests[i], true);
    }
    Merge();
    for (Block& block : blocks_) {
      const auto within = static_cast<int64_t>(reinterpret_cast<uintptr_t>(block.begin) % 256);
      const int64_t first = size_ + kBetween;
      block.at = first + ((within - first) % 256 + 256) % 256;
      size_ = block.at + block.size();
    }
    size_ += kBetween;
  }

  const std::vector<Block>& blocks() const { return blocks_; }
  int64_t size() const { return size_; }

  std::vector<Task> TasksAt(absl::Span<const Task> tasks, std::byte* memory) const {
    std::vector<Task> moved(tasks.begin(), tasks.end());
    for (size_t i = 0; i < moved.size(); ++i) {
      const auto& [source, dests] = footprints_[i];
      const std::byte* const from = Moved(SourceOf(tasks[i]), source, memory);
      if (auto* cut = std::get_if<CutTask>(&moved[i])) {
        cut->source = from;
        for (size_t k = 0; k < dests.size(); ++k) {
          cut->dests[k] = Moved(cut->dests[k], dests[k], memory);
        }
      } else {
        auto& derive = std::get<DeriveTask>(moved[i]);
        derive.source = from;
        derive.dest = Moved(derive.dest, dests[0], memory);
      }
    }
    return moved;
  }

 private:
  static std::byte* SourceOf(const Task& task) {
    return std::visit([](const auto& of) { return const_cast<std::byte*>(of.source); }, task);
  }
  static std::byte* DestOf(const Task& task, size_t i) {
    const auto* cut = std::get_if<CutTask>(&task);
    return cut != nullptr ? cut->dests[i] : std::get<DeriveTask>(task).dest;
  }

  void Add(std::byte* memory, const Hull& hull, bool is_written) {
    if (!hull.empty()) blocks_.push_back({memory + hull.begin, memory + hull.end, is_written});
  }

  // Those that overlap become one.
  void Merge() {
    std::sort(blocks_.begin(), blocks_.end(),
              [](const Block& a, const Block& b) { return a.begin < b.begin; });
    std::vector<Block> merged;
    for (const Block& block : blocks_) {
      if (merged.empty() || block.begin >= merged.back().end) {
        merged.push_back(block);
        continue;
      }
      merged.back().end = std::max(merged.back().end, block.end);
      merged.back().is_written = merged.back().is_written || block.is_written;
    }
    blocks_ = std::move(merged);
  }

  // Where nothing is read or written a pointer stays.
  std::byte* Moved(std::byte* pointer, const Hull& hull, std::byte* memory) const {
    if (hull.empty()) return pointer;
    const auto next =
        std::upper_bound(blocks_.begin(), blocks_.end(), pointer + hull.begin,
                         [](const std::byte* at, const Block& block) { return at < block.begin; });
    const Block& block = *std::prev(next);
    return memory + block.at + (pointer - block.begin);
  }

  std::vector<TaskFootprint> footprints_;
  std::vector<Block> blocks_;
  int64_t size_ = 0;
};

class LaidOutExecutor : public Executor {
 public:
  LaidOutExecutor(std::unique_ptr<Executor> executor, FixedPool pool)
      : pool_(std::move(pool)), executor_(std::move(executor)) {}

  absl::string_view name() const override { return executor_->name(); }

  absl::Status Run(absl::Span<const Task> tasks) override {
    const Layout layout(tasks);
    std::vector<std::byte> image(layout.size());
    for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<std::byte>(0xa5 ^ i * 29);
    for (const Block& block : layout.blocks()) {
      std::memcpy(image.data() + block.at, block.begin, block.size());
    }
    CPSHARD_ASSIGN_OR_RETURN(const Buffer memory, pool_.Allocate(layout.size()));
    CPSHARD_RETURN_IF_ERROR(CopyNow(memory.data(), image.data(), layout.size()));
    CPSHARD_RETURN_IF_ERROR(executor_->Run(layout.TasksAt(tasks, memory.data())));
    CPSHARD_RETURN_IF_ERROR(WaitForDevice());  // the Run may have returned early
    std::vector<std::byte> after(layout.size());
    CPSHARD_RETURN_IF_ERROR(CopyNow(after.data(), memory.data(), layout.size()));
    for (const Block& block : layout.blocks()) {
      if (!block.is_written) continue;
      std::memcpy(block.begin, after.data() + block.at, block.size());
      std::copy_n(after.data() + block.at, block.size(), image.data() + block.at);
    }
    if (after == image) return absl::OkStatus();
    const auto at = std::mismatch(after.begin(), after.end(), image.begin()).first - after.begin();
    return absl::InternalError(
        absl::StrCat("byte ", at, " of ", layout.size(), ", which is no destination, was written"));
  }

 private:
  FixedPool pool_;
  const std::unique_ptr<Executor> executor_;  // goes before its memory
};

}  // namespace

std::unique_ptr<Executor> MakeLaidOutExecutor(std::unique_ptr<Executor> executor, FixedPool pool) {
  return std::make_unique<LaidOutExecutor>(std::move(executor), std::move(pool));
}

}  // namespace cpshard
