// GreetClient: the server's side of a data connection's greeting, for tests that act as a server.
//
// Thread safety: a function without state.
#ifndef CAPSTAN_COMMON_NET_TESTING_GREET_CLIENT_H_
#define CAPSTAN_COMMON_NET_TESTING_GREET_CLIENT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/net/socket/socket_stream.h"

namespace capstan::testing {

// Reads the client's hello, judges and answers it. `stop` becoming readable ends the wait.
// Errors: those of HelloReader::Continue, CheckHello and AnswerHello; kUnavailable  it has not come
// within `timeout`.
absl::Status GreetClient(SocketStream& stream, absl::string_view token, absl::Duration timeout,
                         int stop);

}  // namespace capstan::testing

#endif  // CAPSTAN_COMMON_NET_TESTING_GREET_CLIENT_H_
