#include "common/net/testing/greet_client.h"

#include "absl/time/clock.h"
#include "common/net/frame/data_socket.h"
#include "common/status/status_macros.h"

namespace capstan::testing {

absl::Status GreetClient(SocketStream& stream, absl::string_view token, absl::Duration timeout,
                         int stop) {
  const absl::Time until = absl::Now() + timeout;
  HelloReader reader;
  for (;;) {
    CAPSTAN_ASSIGN_OR_RETURN(const short events, reader.Continue(stream));
    if (events == 0) break;
    CAPSTAN_RETURN_IF_ERROR(AwaitSocket(stream.socket(), events, until, stop));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckHello(reader.hello(), token));
  return AnswerHello(stream, timeout, stop);
}

}  // namespace capstan::testing
