// A loader's call: PushBatches. Batches land, are cut, and are handed to Delivery; its notices go
// out.
//
//   frame with `push` -> BeginPush -> ArrivingBatch (all frames) -> StoredBatch -> EndPush
//                        or dropped, to its last frame
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/options.h"
#include "server/session/session_hub.h"
#include "server/stream/arriving_batch.h"
#include "server/stream/batch_stream.h"
#include "server/stream/frame_stream.h"

namespace cpshard {

class PushCall final : public FrameStream, public std::enable_shared_from_this<PushCall> {
 public:
  // `instance`: of the server, for the welcome.
  static std::shared_ptr<PushCall> Make(const StreamContext& context,
                                        const std::shared_ptr<SessionHub>& hub,
                                        std::string instance, std::function<void()> on_output);

  // Plans, lands and cuts.
  void OnMessage(absl::Span<const Bytes> message, absl::Time input) override;
  void OnInputEnd() override;
  bool WantsInput() const override;
  std::optional<OutFrame> NextFrame(absl::Time now) override;
  absl::Time OutputDue() const override;
  std::optional<absl::Status> Ended() const override;
  void Drain() override {}  // Delivery tells the loader
  void EndIfIdle(const absl::Status& status) override;
  void Expire(absl::Time input) override;
  void Abandon() override;
  int64_t batches() const override;  // landing
  int64_t queued_bytes() const override { return 0; }

 private:
  // A batch that lands. `push` is Delivery's number of it.
  struct Landing {
    uint64_t push = 0;
    StepAddress at;
    int64_t microbatch = 0;
    int64_t bytes = 0;  // of the batch buffer
    bool dead = false;  // given up; who still works on it drops the result
    std::shared_ptr<const SessionTerms> terms;
    std::unique_ptr<ArrivingBatch> batch;
    absl::Time begun, moved;  // by the input's clock; `moved`: bytes came
  };
  using LandingPtr = std::shared_ptr<Landing>;
  enum class Greeting { kNone, kAsked, kAnswered, kDone };

  PushCall(const StreamContext& context, std::shared_ptr<SessionHub> hub, std::string instance,
           std::function<void()> on_output);

  absl::Status OnHello(const LoaderHello& hello);
  absl::Status OnFrame(const BatchFrame& frame, Greeting greeting, absl::Time input);
  absl::Status OnBatch(const BatchFrame& frame, absl::Time input);
  absl::Status Begin(const BatchFrame& frame, absl::Time input);
  absl::StatusOr<std::unique_ptr<ArrivingBatch>> Arrive(const BatchFrame& frame,
                                                        const SessionTerms& terms);
  void Land(const LandingPtr& landing, const BatchFrame& frame, absl::Time input);
  absl::StatusOr<LandedBatch> Complete(Landing& landing);
  void GiveUp(const LandingPtr& landing, absl::Status why);
  void EndPush(uint64_t push, absl::StatusOr<LandedBatch> landed);
  void OnTold();
  void End(absl::Status status);
  void GiveUpAll();
  LandingPtr Find(uint64_t id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const StreamContext& context_;
  const std::shared_ptr<SessionHub> hub_;
  const std::string instance_;
  const std::function<void()> on_output_;
  std::shared_ptr<SessionPeer> peer_;

  // Of the last batch. Used by OnMessage alone.
  std::string options_of_;
  Options options_;

  mutable absl::Mutex mu_;
  Greeting greeting_ ABSL_GUARDED_BY(mu_) = Greeting::kNone;
  std::map<uint64_t, LandingPtr> landings_ ABSL_GUARDED_BY(mu_);
  std::set<uint64_t> dropping_ ABSL_GUARDED_BY(mu_);  // the last frame is still to come
  bool abandoned_ ABSL_GUARDED_BY(mu_) = false;
  bool void_ ABSL_GUARDED_BY(mu_) = false;  // what is still to be told is
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace cpshard
