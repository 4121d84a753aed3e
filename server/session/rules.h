// The rules of delivery that a checker has to notice the absence of. A server keeps all of them;
// the tests of the simulation's checker switch one off at a time.
#pragma once

namespace cpshard {

struct DeliveryRules {
  bool release_in_order = true;    // a step is not delivered before all steps ahead of it can be
  bool fence = true;               // a new generation ends the calls of the old one
  bool check_digests = true;       // a step that comes again must be the same
  bool commit_is_explicit = true;  // a request for a later step commits nothing
  bool guarantee_room = true;      // every data stream has room that no other may take
  bool check_commit_terms = true;  // a commit counts for its own generation and pass only
  bool states_by_step = true;      // the resume state is the latest by step, not by arrival
  bool resume_is_exact = true;     // ... at or before the step asked for, not the one after
  bool keep_budget = true;         // memory is granted only while there is some
  bool same_end_for_all = true;    // all ranks see the end at one step
};

}  // namespace cpshard
