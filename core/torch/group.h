// TokenGroup: the ranks that gather together, one context-parallel group, as the verbs need it.
// Behind it is a c10d process group, found by its name, so that the verbs can be operators: a name
// is a constant of a compiled graph, a handle is not.
//
// Collectives are called by every rank of the group, in the same order, with tensors of the same
// dtype and shape (CPSHARD_CHECK: agreement.h). They return when the result may be used on the
// current stream. A peer that is lost or a time-out raises the exception of the backend in its own
// class (DistBackendError, DistNetworkError, ... or RuntimeError), its text led by the verb, the
// group, its size, this rank and what was waited for.
//
// Values; a copy is the same group. As thread-safe as the process group.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace cpshard {

class TokenGroup {
 public:
  // No group: one rank, which has nobody to ask.
  TokenGroup() = default;

  // The group that is registered with c10d under `name`; "" is none. An unknown name raises.
  explicit TokenGroup(const std::string& name);

  // A group made in C++. Registered with c10d under its own name where nobody is yet, for as long
  // as somebody holds the group. ValueError: it has no name, or another group has that name.
  explicit TokenGroup(const c10::intrusive_ptr<c10d::ProcessGroup>& handle);

  int64_t size() const;             // 1 of none
  int64_t rank() const;             // of this process, in the group
  const std::string& name() const;  // "" of none

  // Every rank's `input` into `output`, in rank order. Both are contiguous; output has size() times
  // the elements.
  void AllGather(const at::Tensor& output, const at::Tensor& input, const char* verb) const;

  // Rank r's `input` into outputs[r], of the shape of input, which may be views with gaps.
  // Precondition: GathersIntoViews.
  void AllGather(const std::vector<at::Tensor>& outputs, const at::Tensor& input,
                 const char* verb) const;

  // Whether the backend of this device puts each rank's part where a view says, and not only end to
  // end: gloo does, for it copies out of a buffer of its own anyway.
  bool GathersIntoViews(const at::Device& device) const;

  // Piece r of `input` to rank r; piece q of `output` from rank q. 1-D, contiguous; `sent` are the
  // elements to each rank, empty for equal pieces. What a rank gets is the same from every rank.
  void AllToAll(const at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& sent,
                const char* verb) const;

  // The sum over the ranks of piece rank() of `input`. Precondition: Reduces.
  void ReduceScatter(const at::Tensor& output, const at::Tensor& input, const char* verb) const;

  // Whether the reference sums gradients by reduce-scatter on this device's backend (NCCL, XCCL).
  bool Reduces(const at::Device& device) const;

  // A device whose tensors the group can send: the CPU where it can.
  at::Device AnyDevice() const;

 private:
  struct Handle;
  std::shared_ptr<const Handle> handle_;  // null = no group
};

// Elements that are moved and not added up: an integer of their size stands for them, so that every
// dtype can be sent and indexed whatever the backend knows of it. A view.
at::Tensor AsIntegers(const at::Tensor& tensor);

}  // namespace cpshard
