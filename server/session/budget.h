// Memory of sessions, as numbers: who may take how much of one budget.
//
// Every data stream has an account with a guarantee: room that nobody else may take. The rest is
// shared: first come, and not above kPrefetchShare of the budget, so that what must land finds
// room.
#pragma once

#include <cstdint>

#include "server/session/rules.h"

namespace cpshard {

struct Account {
  int64_t guarantee = 0;
  int64_t used = 0;
  bool may_share = true;  // else the guarantee is all it gets
};

// Not thread-safe.
class Budget {
 public:
  // Above this share of the budget nothing is given beyond guarantees.
  static constexpr double kPrefetchShare = 0.8;

  Budget(int64_t total, const DeliveryRules& rules) : total_(total), rules_(rules) {}

  // False, and nothing changes: all guarantees together would pass the budget. What others have
  // taken of the shared part comes back in time.
  bool SetGuarantee(Account& account, int64_t bytes);
  // Whether guarantees of so many bytes in place of `instead` would fit.
  bool Fits(int64_t bytes, int64_t instead) const {
    return guaranteed_ - instead <= total_ - bytes;
  }

  // False, and nothing changes: there is no room now.
  bool Take(Account& account, int64_t bytes);
  void GiveBack(Account& account, int64_t bytes);

  int64_t total() const { return total_; }
  int64_t used() const { return used_; }
  int64_t most_used() const { return most_used_; }
  int64_t guaranteed() const { return guaranteed_; }
  int64_t freed() const { return freed_; }  // counts what has made room

 private:
  static int64_t SharedOf(const Account& account);

  const int64_t total_;
  const DeliveryRules rules_;
  int64_t used_ = 0, most_used_ = 0;
  int64_t guaranteed_ = 0;
  int64_t shared_ = 0;  // used beyond guarantees
  int64_t freed_ = 0;
};

}  // namespace cpshard
