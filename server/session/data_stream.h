// One data stream of a group: its loaders, its window, its end. Readers are the group's business.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/session/digest_ring.h"
#include "server/session/outbox.h"
#include "server/session/resume_table.h"
#include "server/session/window.h"

namespace cpshard {

// Loader i of L of a data stream.
struct LoaderSeat {
  bool known = false;   // said hello on this server instance
  bool awaited = true;  // and is to say so before there is a position
  PeerId peer = 0;      // 0: no connection
  int64_t incarnation = 0;
  absl::Time heard;
  LoaderStream hello;                   // as it would say it now
  int64_t generation_seen = 0;          // likewise
  std::optional<int64_t> declared_end;  // in this epoch
};

// What of a push is left to do.
struct PushTicket {
  PeerId peer = 0;
  int64_t loader = 0;
  PushHead head;
  StepPtr step;
  bool compares = false;      // it only lands to be compared with what is here ...
  int64_t compare_bytes = 0;  // ... in so much memory
};

// Not thread-safe. `options`, `budget` and `outbox` must outlive the object.
class DataStream {
 public:
  DataStream(std::string name, const DeliveryOptions& options, Budget& budget, Outbox& outbox);

  const std::string& name() const { return name_; }
  int64_t pass() const { return pass_; }
  int64_t epoch() const { return epoch_; }
  bool positioned() const { return positioned_; }
  std::optional<int64_t> end_step() const { return end_step_; }  // agreed
  Window& window() { return window_; }
  const Window& window() const { return window_; }
  const ResumeTable& states() const { return states_; }
  StepAddress At(int64_t step) const { return {name_, pass_, step}; }

  // --- as the group opens it

  // Of memory of a step. False: the guarantee does not fit the budget.
  bool SetStepBytes(int64_t max_step_bytes);
  int64_t max_step_bytes() const { return max_step_bytes_; }
  // How many loaders it has is known before they come, and does not change.
  void DeclareLoaders(int64_t num_loaders);
  static int64_t GuaranteeOf(const DeliveryOptions& options, int64_t max_step_bytes) {
    return (options.replay_steps + 2) * max_step_bytes;
  }

  // No position until the next Seek or Keep: a generation opens, a pass is over.
  void Suspend() { positioned_ = false; }
  // Those who are away have to come back before there is a position: a new run may have others.
  void AwaitAbsentLoaders();
  // A pass, from nothing on.
  void BeginPass(int64_t pass);
  // Goes to `step`, in a new epoch: everything that was here is void. `state`: of step - 1.
  void Seek(int64_t step, const ResumeState& state, int64_t generation);
  // Stays as it is; everybody is told where that is. Generation 0, here and below: no readers have
  // come, and a loader is told the one that it has seen itself.
  void Keep(int64_t generation);
  // Tells loaders that a pass is over.
  void SayDone(int64_t pass, bool finished);

  bool SetFloor(int64_t floor);  // not above the frontier
  // Gives the next credit. False: none is wanted, or there is no room.
  bool Grant();
  bool WantsGrant() const;

  // --- loaders

  int64_t num_loaders() const { return static_cast<int64_t>(seats_.size()); }  // 0: not known
  const std::vector<LoaderSeat>& seats() const { return seats_; }
  bool all_loaders_there() const;  // all have said hello
  // No loader has been told of a position of readers before, on whichever server.
  bool all_loaders_fresh() const;
  // Nobody is connected for it, and nothing holds memory of it.
  bool idle() const;

  // Whether this loader may take its seat; nothing changes.
  absl::Status CheckHello(const LoaderHello& hello) const;
  void TakeSeat(PeerId peer, const LoaderHello& hello, const LoaderStream& stream, absl::Time now);
  // Where it is to go on, and its credits. Precondition: positioned.
  void SayPosition(int64_t loader, int64_t generation);
  void LoaderGone(int64_t loader, PeerId peer, absl::Time now);
  void Heard(int64_t loader, absl::Time now) {
    if (loader < num_loaders()) seats_[loader].heard = now;
  }

  // nullopt: its bytes are to be dropped; the loader was told what there is to tell. `failure`: the
  // generation has failed by it.
  std::optional<PushTicket> BeginPush(PeerId peer, int64_t loader, const PushHead& head,
                                      int64_t bytes, uint64_t push, absl::Status* failure);
  // True: the step can be looked at again, something has landed.
  bool EndPush(const PushTicket& ticket, absl::StatusOr<LandedBatch> landed, absl::Status* failure);

  // Not OK: what the call ends with, and the generation fails with.
  absl::Status DeclareEnd(PeerId peer, int64_t loader, const EndOfStream& end);

  // Takes back credits beyond the guarantee, the last first, as far as nothing has come for them.
  // False: there are none. Precondition: positioned.
  bool TakeBackShared(int64_t generation);

  // Batches that came again as other ones, in another epoch; what is to be said of the last one,
  // and whether that is the first of its epoch, which is asked once.
  int64_t digest_changes() const { return digest_changes_; }
  const std::string& notice() const { return notice_; }
  bool TakeNews() { return std::exchange(has_news_, false); }

 private:
  int64_t OwnerOf(int64_t step) const { return step % num_loaders(); }
  bool IsSeated(PeerId peer, int64_t loader) const {
    return loader < num_loaders() && seats_[loader].peer == peer;
  }
  std::optional<absl::Status> JudgePush(int64_t loader, const PushHead& head, int64_t bytes,
                                        absl::Status* failure);
  std::optional<absl::Status> JudgeAgain(const PushHead& head, absl::Status* failure);
  absl::Status Land(const PushTicket& ticket, Microbatch& microbatch, LandedBatch batch,
                    absl::Status* failure);
  absl::Status CheckTotals(const Step& step) const;
  std::optional<absl::Status> Compare(const PushHead& head, uint64_t digest, absl::Status* failure);
  void Remember(const PushHead& head, uint64_t digest);
  void SayAck(PeerId peer, const PushHead& head, absl::Status status);
  void SayCredit(const Step& step);
  void DropUndelivered(int64_t loader);

  const std::string name_;
  const DeliveryOptions& options_;
  Budget& budget_;
  Outbox& outbox_;

  int64_t pass_ = 0, epoch_ = 0;
  bool positioned_ = false;
  int64_t max_step_bytes_ = 0;
  Window window_;
  ResumeTable states_;
  DigestRing digests_;
  std::vector<LoaderSeat> seats_;
  std::optional<int64_t> lowest_end_;  // that a loader has declared
  std::optional<int64_t> end_step_;    // that all have
  bool loaders_declared_ = false;
  int64_t digest_changes_ = 0;
  int64_t noticed_epoch_ = -1;
  std::string notice_;
  bool has_news_ = false;
};

}  // namespace cpshard
