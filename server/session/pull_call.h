// A reader's call: PullShards, or GetShard, which is one request of it. The session's requests come
// in, deliveries become answers.
//
//   Delivery -> told (SessionPeer) -> queue, in order -> made on a worker, a few ahead -> frames
//   out
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/session_codec.h"
#include "server/session/session_hub.h"
#include "server/stream/batch_stream.h"
#include "server/stream/frame_stream.h"

namespace cpshard {

class PullCall final : public FrameStream, public std::enable_shared_from_this<PullCall> {
 public:
  // `one`: the request of a GetShard; an error of it is the call's.
  static std::shared_ptr<PullCall> Make(const StreamContext& context,
                                        const std::shared_ptr<SessionHub>& hub,
                                        std::optional<GetShard> one,
                                        std::function<void()> on_output);

  void OnMessage(absl::Span<const Bytes> message, absl::Time input) override;
  void OnInputEnd() override;  // what was asked for is still answered
  bool WantsInput() const override;
  std::optional<OutFrame> NextFrame(absl::Time now) override;
  absl::Time OutputDue() const override;
  std::optional<absl::Status> Ended() const override;
  void Drain() override;  // what is complete is still delivered
  void EndIfIdle(const absl::Status& status) override;
  void Expire(absl::Time) override {}
  void Abandon() override;
  // None while the reader waits for what is not there; it may come back to what is, for a while.
  int64_t batches() const override;
  int64_t queued_bytes() const override;

 private:
  PullCall(const StreamContext& context, std::shared_ptr<SessionHub> hub,
           std::optional<GetShard> one, std::function<void()> on_output);

  absl::Status OnRequest(PullRequest request);
  absl::Status Attach(const SessionName& session, bool lasting);
  void Ask(Want want);
  void OnTold();

  // Making answers: by one thread at a time, who has claimed it.
  bool Claim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MakeSome();
  void MakeOne();
  void Take(DeliverShard deliver);
  void Refuse(uint64_t id, absl::Status status);
  void End(absl::Status status);

  const StreamContext& context_;
  const std::shared_ptr<SessionHub> hub_;
  const std::optional<GetShard> one_;
  const std::function<void()> on_output_;
  std::shared_ptr<SessionPeer> peer_;

  mutable absl::Mutex mu_;
  bool attached_ ABSL_GUARDED_BY(mu_) = false;
  bool making_ ABSL_GUARDED_BY(mu_) = false;
  // Wants that are not answered; true: one microbatch alone.
  std::map<uint64_t, bool> asked_ ABSL_GUARDED_BY(mu_);
  std::deque<OutgoingAnswer> outgoing_ ABSL_GUARDED_BY(mu_);
  absl::Time output_due_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Time heard_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // a request came, or Drain
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool input_ended_ ABSL_GUARDED_BY(mu_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace cpshard
