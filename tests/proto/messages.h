// Messages written as text, and the bytes of a message as a transport hands them over.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/proto/spans.h"

namespace cpshard {

template <typename Message>
Message FromText(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

template <typename Message>
Message Parsed(const std::string& bytes) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  return message;
}

// A field that no message has.
inline const std::string kUnknownField = "\xf2\x3e\x03new";  // number 1006

}  // namespace cpshard
