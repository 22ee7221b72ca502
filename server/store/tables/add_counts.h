// Sums of counts. Thread safety: a function without state.
#ifndef CAPSTAN_SERVER_STORE_TABLES_ADD_COUNTS_H_
#define CAPSTAN_SERVER_STORE_TABLES_ADD_COUNTS_H_

#include <google/protobuf/message.h>

namespace capstan::server {

// Adds each field of `more` to the same field of `*sum`.
// REQUIRES: both are of one message type, all of whose fields are single int64s.
void AddCounts(const google::protobuf::Message& more, google::protobuf::Message* sum);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_TABLES_ADD_COUNTS_H_
