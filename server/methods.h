// The service as gRPC sees it: every call carries messages both ways, as bytes.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cpshard {

class Methods : public grpc::Service {
 protected:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;
  using Start = std::function<Reactor*(grpc::CallbackServerContext*)>;

  explicit Methods(std::string service) : service_(std::move(service)) {}

  // To be called for every method of the service before a server is built with it. In the way of
  // generated code, which would tie each to the kind of call that its client sees.
  void Serve(const char* method, Start start) {
    const auto index = static_cast<int>(names_.size());
    names_.push_back(absl::StrCat("/", service_, "/", method));
    AddMethod(new grpc::internal::RpcServiceMethod(
        names_.back().c_str(), grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
    MarkMethodRawCallback(
        index, new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                   std::move(start)));
  }

 private:
  const std::string service_;
  std::deque<std::string> names_;  // gRPC keeps no copies
};

}  // namespace cpshard
