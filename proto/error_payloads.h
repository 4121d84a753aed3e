// How ErrorDetails lie on a status: as the payloads that its details on the wire are made of. Used
// inside proto/ only.
#pragma once

namespace cpshard {

inline constexpr char kErrorDomain[] = "cpshard";
inline constexpr char kErrorInfoUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
inline constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";

}  // namespace cpshard
