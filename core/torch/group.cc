// The one file of core/torch that sees c10d.
#include "core/torch/group.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

namespace cpshard {

struct TokenGroup::Handle {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::string name;

  std::string Context(const char* verb, const char* awaited) const {
    return c10::str(verb, " on group '", name, "' of ", group->getSize(), " ranks, rank ",
                    group->getRank(), ", waiting for ", awaited, ": ");
  }

  std::string BackendName(const at::Device& device) const {
    return group->getBackend(device.type())->getBackendName();
  }

  // Runs a collective to its end. c10d's classes stay what they are: callers catch them by class.
  template <typename Start>
  void Run(const char* verb, const char* awaited, Start start) const {
    try {
      start()->wait();
    } catch (const c10::DistBackendError& error) {
      C10_THROW_ERROR(DistBackendError, Context(verb, awaited) + error.what_without_backtrace());
    } catch (const c10::DistNetworkError& error) {
      C10_THROW_ERROR(DistNetworkError, Context(verb, awaited) + error.what_without_backtrace());
    } catch (const c10::DistStoreError& error) {
      C10_THROW_ERROR(DistStoreError, Context(verb, awaited) + error.what_without_backtrace());
    } catch (const c10::DistError& error) {
      C10_THROW_ERROR(DistError, Context(verb, awaited) + error.what_without_backtrace());
    } catch (const c10::Error& error) {
      C10_THROW_ERROR(Error, Context(verb, awaited) + error.what_without_backtrace());
    } catch (const std::exception& error) {  // gloo's own
      C10_THROW_ERROR(Error, Context(verb, awaited) + error.what());
    }
  }
};

namespace {

// The group that is registered under the name; null: none, or one that is gone.
c10::intrusive_ptr<c10d::ProcessGroup> Registered(const std::string& name) {
  try {
    return c10d::resolve_process_group(name);
  } catch (const c10::Error&) {
    return {};
  }
}

std::string NameOf(const c10d::ProcessGroup& group) {
  try {
    return group.getGroupName();
  } catch (const c10::Error&) {  // a group without backends
    return "";
  }
}

}  // namespace

TokenGroup::TokenGroup(const std::string& name) {
  if (name.empty()) return;
  handle_ = std::make_shared<Handle>(Handle{c10d::resolve_process_group(name), name});
}

TokenGroup::TokenGroup(const c10::intrusive_ptr<c10d::ProcessGroup>& handle) {
  const std::string name = NameOf(*handle);
  TORCH_CHECK_VALUE(!name.empty(), "the process group has no name; setGroupName gives it one");
  const auto registered = Registered(name);
  TORCH_CHECK_VALUE(!registered || registered == handle, "another process group is registered as '",
                    name, "'; operators would find that one: give this one a name of its own");
  if (!registered) {
    c10d::unregister_process_group(name);  // of a group that is gone
    c10d::register_process_group(name, handle);
  }
  handle_ = std::make_shared<Handle>(Handle{handle, name});
}

int64_t TokenGroup::size() const { return handle_ ? handle_->group->getSize() : 1; }

int64_t TokenGroup::rank() const { return handle_ ? handle_->group->getRank() : 0; }

const std::string& TokenGroup::name() const {
  static const std::string none;
  return handle_ ? handle_->name : none;
}

void TokenGroup::AllGather(const at::Tensor& output, const at::Tensor& input,
                           const char* verb) const {
  at::Tensor to = AsIntegers(output).view(-1), from = AsIntegers(input).view(-1);
  handle_->Run(verb, "the shards of all ranks",
               [&] { return handle_->group->_allgather_base(to, from); });
}

void TokenGroup::AllGather(const std::vector<at::Tensor>& outputs, const at::Tensor& input,
                           const char* verb) const {
  std::vector<std::vector<at::Tensor>> to(1);
  for (const at::Tensor& output : outputs) to.front().push_back(AsIntegers(output));
  std::vector<at::Tensor> from = {AsIntegers(input)};
  handle_->Run(verb, "the shards of all ranks",
               [&] { return handle_->group->allgather(to, from); });
}

bool TokenGroup::GathersIntoViews(const at::Device& device) const {
  return device.is_cpu() && handle_->BackendName(device) == "gloo";
}

void TokenGroup::AllToAll(const at::Tensor& output, const at::Tensor& input,
                          const std::vector<int64_t>& sent, const char* verb) const {
  at::Tensor to = AsIntegers(output), from = AsIntegers(input);
  std::vector<int64_t> from_splits = sent, to_splits;
  if (!sent.empty()) to_splits.assign(size(), output.numel() / size());
  handle_->Run(verb, "the gradients of all ranks",
               [&] { return handle_->group->alltoall_base(to, from, to_splits, from_splits); });
}

void TokenGroup::ReduceScatter(const at::Tensor& output, const at::Tensor& input,
                               const char* verb) const {
  at::Tensor to = output, from = input;
  handle_->Run(verb, "the gradients of all ranks",
               [&] { return handle_->group->_reduce_scatter_base(to, from); });
}

bool TokenGroup::Reduces(const at::Device& device) const {
  const std::string backend = handle_->BackendName(device);
  return backend == "nccl" || backend == "xccl";
}

at::Device TokenGroup::AnyDevice() const {
  if (!handle_) return at::kCPU;
  const std::vector<c10::Device> devices = handle_->group->getDeviceTypes();
  for (const at::Device& device : devices) {
    if (device.is_cpu()) return device;
  }
  return devices.empty() ? at::Device(at::kCPU) : devices.front();
}

at::Tensor AsIntegers(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1:
      return tensor.view(at::kByte);
    case 2:
      return tensor.view(at::kHalf);  // backends know no 16-bit integer
    case 4:
      return tensor.view(at::kInt);
    case 8:
      return tensor.view(at::kLong);
  }
  return tensor;
}

}  // namespace cpshard
