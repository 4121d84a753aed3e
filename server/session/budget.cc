#include "server/session/budget.h"

#include <algorithm>

namespace cpshard {

int64_t Budget::SharedOf(const Account& account) {
  return std::max<int64_t>(0, account.used - account.guarantee);
}

bool Budget::SetGuarantee(Account& account, int64_t bytes) {
  if (!Fits(bytes, account.guarantee)) return false;
  ++freed_;
  shared_ -= SharedOf(account);
  guaranteed_ += bytes - account.guarantee;
  account.guarantee = bytes;
  shared_ += SharedOf(account);
  return true;
}

bool Budget::Take(Account& account, int64_t bytes) {
  const int64_t before = SharedOf(account);
  const int64_t more = std::max<int64_t>(0, account.used + bytes - account.guarantee) -
                       before;  // of the shared part
  const int64_t guaranteed = rules_.guarantee_room ? guaranteed_ : 0;
  const bool fits = used_ <= total_ - bytes;
  bool shared_fits = true;
  if (rules_.guarantee_room && more > 0) {
    shared_fits =
        account.may_share && shared_ + more <= total_ - guaranteed &&
        static_cast<double>(used_ + bytes) <= kPrefetchShare * static_cast<double>(total_);
  }
  if (rules_.keep_budget && !(fits && shared_fits)) return false;
  account.used += bytes;
  used_ += bytes;
  shared_ += more;
  most_used_ = std::max(most_used_, used_);
  return true;
}

void Budget::GiveBack(Account& account, int64_t bytes) {
  const int64_t before = SharedOf(account);
  account.used -= bytes;
  used_ -= bytes;
  ++freed_;
  shared_ += SharedOf(account) - before;
}

}  // namespace cpshard
