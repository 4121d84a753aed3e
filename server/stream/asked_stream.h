// A call of one request and many answers: nothing but the request comes in, then the stream that it
// asks for is sent.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/stream/frame_stream.h"

namespace cpshard {

class AskedStream final : public FrameStream {
 public:
  // Makes what a request asks for; its input has ended. Called once at most, on a worker.
  using Ask = std::function<absl::StatusOr<std::shared_ptr<FrameStream>>(absl::Span<const Bytes>)>;

  // `stall`: what the request may take to come.
  AskedStream(Ask ask, absl::Duration stall, std::function<void()> on_output);

  void OnMessage(absl::Span<const Bytes> message, absl::Time input) override;
  void OnInputEnd() override;
  bool WantsInput() const override;
  std::optional<OutFrame> NextFrame(absl::Time now) override;
  absl::Time OutputDue() const override;
  std::optional<absl::Status> Ended() const override;
  void Drain() override;
  void EndIfIdle(const absl::Status& status) override;
  void Expire(absl::Time input) override;
  void Abandon() override;
  int64_t batches() const override;
  int64_t queued_bytes() const override;

 private:
  // What was asked for; null: nothing yet.
  std::shared_ptr<FrameStream> asked() const;
  // Of a call that has not asked.
  void End(const absl::Status& status);

  const Ask ask_;
  const absl::Duration stall_;
  const std::function<void()> on_output_;
  mutable absl::Mutex mu_;
  std::shared_ptr<FrameStream> asked_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
  absl::Time begun_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();  // by the input's clock
};

}  // namespace cpshard
