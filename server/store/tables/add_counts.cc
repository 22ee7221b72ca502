#include "server/store/tables/add_counts.h"

#include <google/protobuf/descriptor.h>

namespace capstan::server {

void AddCounts(const google::protobuf::Message& more, google::protobuf::Message* sum) {
  const google::protobuf::Descriptor& type = *sum->GetDescriptor();
  const google::protobuf::Reflection& values = *sum->GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = type.field(i);
    values.SetInt64(sum, field, values.GetInt64(*sum, field) + values.GetInt64(more, field));
  }
}

}  // namespace capstan::server
