#include "common/checkpoint/shard_file.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/read_checked.h"
#include "common/checkpoint/row_pieces.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/crc32c.h"
#include "common/storage/little_endian.h"

namespace capstan {
namespace {

constexpr absl::string_view kShardMagic = "CAPSHRD1";
constexpr absl::string_view kFooterMagic = "CAPSHEND";
constexpr uint32_t kFormat = 4;
constexpr size_t kFixedHeaderBytes = 60;  // These bytes precede the job's name.
constexpr size_t kFooterBytes = 28;
constexpr size_t kJobBytesMax = 1024;

struct Header {
  ShardKey key;
  Range elements;
  int64_t version = 0;
  int64_t position = 0;
  JobId job;
};

int64_t BlockCount(int64_t payload_bytes) {
  return (payload_bytes + kShardFileBlockBytes - 1) / kShardFileBlockBytes;
}

std::string EncodeHeader(const Header& header) {
  std::string bytes(kShardMagic);
  PutLe32(kFormat, &bytes);
  PutLe32(static_cast<uint32_t>(header.key.table.value()), &bytes);
  PutLe32(static_cast<uint32_t>(header.key.shard.value()), &bytes);
  PutLe32(static_cast<uint32_t>(header.job.size()), &bytes);
  PutLe64(static_cast<uint64_t>(header.elements.begin), &bytes);
  PutLe64(static_cast<uint64_t>(header.elements.end), &bytes);
  PutLe64(static_cast<uint64_t>(header.version), &bytes);
  PutLe64(static_cast<uint64_t>(header.position), &bytes);
  PutLe32(static_cast<uint32_t>(kShardFileBlockBytes), &bytes);
  bytes += header.job;
  PutLe32(MaskCrc(Crc32cOf(bytes)), &bytes);
  return bytes;
}

std::string EncodeFooter(int64_t file_bytes, int64_t payload_bytes) {
  std::string bytes(kFooterMagic);
  PutLe64(static_cast<uint64_t>(file_bytes), &bytes);
  PutLe64(static_cast<uint64_t>(payload_bytes), &bytes);
  PutLe32(MaskCrc(Crc32cOf(bytes)), &bytes);
  return bytes;
}

uint32_t BlockCrc(int64_t index, absl::string_view block) {
  std::string number;
  PutLe64(static_cast<uint64_t>(index), &number);
  Crc32c crc;
  crc.Add(number);
  crc.Add(block);
  return MaskCrc(crc.value());
}

absl::Status Loss(absl::string_view what) { return absl::DataLossError(what); }

absl::Status CheckCrc(absl::string_view what, size_t at, uint32_t found, uint32_t expected) {
  if (found == expected) return absl::OkStatus();
  return Loss(absl::StrCat(what, " at byte ", at, " has the checksum ", absl::Hex(found),
                           ", expected ", absl::Hex(expected)));
}

// Reads the header and moves `at` behind it.
absl::StatusOr<Header> DecodeHeader(absl::string_view file, size_t* at) {
  if (file.size() < kFixedHeaderBytes + Crc32c::kBytes) {
    return Loss(absl::StrCat("the file has ", file.size(), " bytes, expected at least ",
                             kFixedHeaderBytes + Crc32c::kBytes));
  }
  if (file.substr(0, kShardMagic.size()) != kShardMagic) {
    return Loss("the file does not begin as a shard file");
  }
  const uint32_t job_bytes = GetLe32(file, 20);
  const size_t end = kFixedHeaderBytes + std::min<size_t>(job_bytes, kJobBytesMax);
  if (job_bytes > kJobBytesMax || file.size() < end + Crc32c::kBytes) {
    return Loss(absl::StrCat("the header at byte 0 names a job of ", job_bytes, " bytes"));
  }
  CAPSTAN_RETURN_IF_ERROR(
      CheckCrc("the header", 0, GetLe32(file, end), MaskCrc(Crc32cOf(file.substr(0, end)))));
  if (const uint32_t format = GetLe32(file, 8); format != kFormat) {
    return Loss(absl::StrCat("the file is of format ", format, ", expected ", kFormat));
  }
  Header header;
  header.key = {TableId(static_cast<int32_t>(GetLe32(file, 12))),
                ShardId(static_cast<int32_t>(GetLe32(file, 16)))};
  header.elements = {static_cast<int64_t>(GetLe64(file, 24)),
                     static_cast<int64_t>(GetLe64(file, 32))};
  header.version = static_cast<int64_t>(GetLe64(file, 40));
  header.position = static_cast<int64_t>(GetLe64(file, 48));
  header.job = std::string(file.substr(kFixedHeaderBytes, job_bytes));
  if (const uint32_t block = GetLe32(file, 56); block != kShardFileBlockBytes) {
    return Loss(absl::StrCat("the header at byte 0 says blocks of ", block, " bytes, expected ",
                             kShardFileBlockBytes));
  }
  *at = end + Crc32c::kBytes;
  return header;
}

// Returns the bytes of all blocks, which begin at `at`; the footer holds their number.
absl::StatusOr<std::string> DecodeBlocks(absl::string_view file, size_t at) {
  const size_t footer = std::max(file.size(), at + kFooterBytes) - kFooterBytes;
  const bool is_whole = file.size() >= footer + kFooterBytes;
  const int64_t payload_bytes = is_whole ? static_cast<int64_t>(GetLe64(file, footer + 16)) : 0;
  if (!is_whole ||
      file.substr(footer) != EncodeFooter(static_cast<int64_t>(file.size()), payload_bytes)) {
    return Loss(absl::StrCat("the footer at byte ", footer,
                             " is not the one expected of a file of ", file.size(), " bytes"));
  }
  if (payload_bytes < 0 || payload_bytes > kShardFileBytesMax ||
      at + static_cast<size_t>(payload_bytes) +
              static_cast<size_t>(BlockCount(payload_bytes)) * Crc32c::kBytes !=
          footer) {
    return Loss(absl::StrCat("the footer at byte ", footer, " says ", payload_bytes,
                             " bytes in blocks, expected what lies between ", at, " and it"));
  }
  std::string payload;
  payload.reserve(static_cast<size_t>(payload_bytes));
  for (int64_t i = 0; i < BlockCount(payload_bytes); ++i) {
    const size_t bytes = static_cast<size_t>(
        std::min(kShardFileBlockBytes, payload_bytes - static_cast<int64_t>(payload.size())));
    const absl::string_view block = file.substr(at, bytes);
    CAPSTAN_RETURN_IF_ERROR(
        CheckCrc(absl::StrCat("block ", i), at, GetLe32(file, at + bytes), BlockCrc(i, block)));
    payload.append(block.data(), block.size());
    at += bytes + Crc32c::kBytes;
  }
  return payload;
}

absl::Status CheckPart(const Header& header, const JobId& job, const v1::CheckpointPart& part) {
  const auto describe = [](const JobId& of, int32_t table, int32_t shard, int64_t begin,
                           int64_t end, int64_t version) {
    return absl::StrCat("job ", of, ", table ", table, ", shard ", shard, ", elements [", begin,
                        ", ", end, "), version ", version);
  };
  const std::string found = describe(header.job, header.key.table.value(), header.key.shard.value(),
                                     header.elements.begin, header.elements.end, header.version);
  const std::string expected = describe(job, part.table(), part.shard(), part.element_begin(),
                                        part.element_end(), part.version());
  if (found == expected) return absl::OkStatus();
  return Loss(absl::StrCat("the file holds ", found, "; expected ", expected));
}

// Holds at most two of the file, its payload and the snapshot in memory at a time, since each may
// be 1 GiB.
absl::StatusOr<v1::ShardSnapshot> Decode(std::string file, const JobId& job,
                                         const v1::CheckpointPart& part) {
  size_t at = 0;
  CAPSTAN_ASSIGN_OR_RETURN(const Header header, DecodeHeader(file, &at));
  CAPSTAN_ASSIGN_OR_RETURN(std::string payload, DecodeBlocks(file, at));
  CAPSTAN_RETURN_IF_ERROR(CheckPart(header, job, part));
  // These checks come last because they cannot name the damaged place.
  if (static_cast<int64_t>(file.size()) != part.bytes()) {
    return Loss(
        absl::StrCat("the file has ", file.size(), " bytes, the manifest says ", part.bytes()));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckCrc("the whole file", 0, Crc32cOf(file), part.crc32c()));
  std::string().swap(file);
  v1::ShardSnapshot snapshot;
  if (!snapshot.ParseFromString(payload) || snapshot.elements() != header.elements.size() ||
      snapshot.state().version() != header.version || snapshot.position() != header.position) {
    return Loss("the blocks do not hold the snapshot that the header describes");
  }
  if (snapshot.since().checkpoint_id() != part.base_id()) {
    return Loss(absl::StrCat("the file rests on checkpoint ", snapshot.since().checkpoint_id(),
                             ", the manifest says ", part.base_id(), " (0: it has all)"));
  }
  std::string().swap(payload);
  CAPSTAN_RETURN_IF_ERROR(JoinRowPieces(&snapshot));
  return snapshot;
}

// Checks the header and the footer of the file. Missing bytes count as damage.
absl::Status Probe(Disk& disk, const std::string& path, const JobId& job,
                   const v1::CheckpointPart& part) {
  constexpr auto kHeadBytesMax =
      static_cast<int64_t>(kFixedHeaderBytes + kJobBytesMax + Crc32c::kBytes);
  constexpr auto kTailBytes = static_cast<int64_t>(kFooterBytes);
  if (part.bytes() < kTailBytes) return Loss(absl::StrCat("a part of ", part.bytes(), " bytes"));
  CAPSTAN_ASSIGN_OR_RETURN(const std::string head,
                           disk.ReadPart(path, 0, std::min(part.bytes(), kHeadBytesMax)));
  size_t at = 0;
  CAPSTAN_ASSIGN_OR_RETURN(const Header header, DecodeHeader(head, &at));
  CAPSTAN_RETURN_IF_ERROR(CheckPart(header, job, part));
  const int64_t end = part.bytes() - kTailBytes;
  CAPSTAN_ASSIGN_OR_RETURN(const std::string footer, disk.ReadPart(path, end, kTailBytes));
  if (footer == EncodeFooter(part.bytes(), static_cast<int64_t>(GetLe64(footer, 16)))) {
    return absl::OkStatus();
  }
  return Loss(absl::StrCat("the footer at byte ", end, " is not the one expected of a file of ",
                           part.bytes(), " bytes"));
}

}  // namespace

std::string ShardFileName(const ShardKey& key) {
  return absl::StrCat("table-", key.table.value(), "-shard-", key.shard.value(), kPartSuffix);
}

absl::StatusOr<ShardFileWriter> ShardFileWriter::Begin(Disk* disk, const std::string& folder,
                                                       const JobId& job, const ShardKey& key,
                                                       const Range& elements,
                                                       const v1::ShardSnapshot& snapshot,
                                                       int64_t bytes_max) {
  const std::string name = ShardFileName(key);
  const std::string path = absl::StrCat(folder, "/", name);
  if (job.size() > kJobBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the job's name has ", job.size(),
                                                   " bytes, expected at most ", kJobBytesMax));
  }
  CAPSTAN_ASSIGN_OR_RETURN(DurableDiskFile file, DurableDiskFile::Create(disk, path));
  ShardFileWriter writer(std::move(file), path, bytes_max);
  v1::CheckpointPart& part = writer.part_;
  part.set_table(key.table.value());
  part.set_shard(key.shard.value());
  part.set_element_begin(elements.begin);
  part.set_element_end(elements.end);
  part.set_version(snapshot.state().version());
  part.set_file(name);
  part.set_base_id(snapshot.since().checkpoint_id());
  CAPSTAN_RETURN_IF_ERROR(writer.Write(EncodeHeader({.key = key,
                                                     .elements = elements,
                                                     .version = snapshot.state().version(),
                                                     .position = snapshot.position(),
                                                     .job = job})));
  CAPSTAN_RETURN_IF_ERROR(writer.AddToBlocks(snapshot.SerializeAsString()));
  return writer;
}

absl::Status ShardFileWriter::Add(v1::ShardSnapshot piece) {
  // The message holds this piece only. A parser merges it into the message in front of it.
  v1::ShardSnapshot more;
  more.add_pieces()->Swap(&piece);
  return AddToBlocks(more.SerializeAsString());
}

absl::Status ShardFileWriter::AddToBlocks(absl::string_view bytes) {
  payload_bytes_ += static_cast<int64_t>(bytes.size());
  if (file_bytes_ +
          static_cast<int64_t>(block_.size() + bytes.size() + Crc32c::kBytes + kFooterBytes) >
      bytes_max_) {
    return absl::InvalidArgumentError(absl::StrCat(path_, " would have more than ", payload_bytes_,
                                                   " bytes, expected at most ", bytes_max_));
  }
  while (!bytes.empty()) {
    const size_t room = static_cast<size_t>(kShardFileBlockBytes) - block_.size();
    const absl::string_view taken = bytes.substr(0, room);
    block_.append(taken.data(), taken.size());
    bytes.remove_prefix(taken.size());
    if (taken.size() == room) CAPSTAN_RETURN_IF_ERROR(WriteBlock());
  }
  return absl::OkStatus();
}

absl::Status ShardFileWriter::WriteBlock() {
  PutLe32(BlockCrc(blocks_++, block_), &block_);
  const absl::Status written = Write(block_);
  block_.clear();
  return written;
}

absl::Status ShardFileWriter::Write(absl::string_view bytes) {
  crc_.Add(bytes);
  file_bytes_ += static_cast<int64_t>(bytes.size());
  return file_.Append(bytes);
}

absl::StatusOr<v1::CheckpointPart> ShardFileWriter::Finish() {
  if (!block_.empty()) CAPSTAN_RETURN_IF_ERROR(WriteBlock());
  const int64_t bytes = file_bytes_ + static_cast<int64_t>(kFooterBytes);
  CAPSTAN_RETURN_IF_ERROR(Write(EncodeFooter(bytes, payload_bytes_)));
  CAPSTAN_RETURN_IF_ERROR(file_.Commit());
  part_.set_bytes(file_bytes_);
  part_.set_crc32c(crc_.value());
  return part_;
}

absl::StatusOr<v1::CheckpointPart> WriteShardFile(Disk& disk, const std::string& folder,
                                                  const JobId& job, const ShardKey& key,
                                                  const Range& elements,
                                                  const v1::ShardSnapshot& snapshot) {
  CAPSTAN_ASSIGN_OR_RETURN(ShardFileWriter writer,
                           ShardFileWriter::Begin(&disk, folder, job, key, elements, snapshot));
  return writer.Finish();
}

absl::Status ProbeShardFile(Disk& disk, const std::string& folder, const JobId& job,
                            const v1::CheckpointPart& part) {
  const std::string path = absl::StrCat(folder, "/", part.file());
  absl::Status status;
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    status = Probe(disk, path, job, part);
    if (status.ok() || absl::IsNotFound(status)) break;
  }
  if (absl::IsNotFound(status)) return Loss(status.message());
  return absl::IsDataLoss(status) ? Annotate(status, path) : status;
}

absl::StatusOr<v1::ShardSnapshot> ReadShardFile(Disk& disk, const std::string& folder,
                                                const JobId& job, const v1::CheckpointPart& part) {
  const std::string path = absl::StrCat(folder, "/", part.file());
  absl::StatusOr<v1::ShardSnapshot> snapshot = ReadChecked<v1::ShardSnapshot>(
      disk, path, kShardFileBytesMax,
      [&](std::string file) { return Decode(std::move(file), job, part); });
  const absl::Status& status = snapshot.status();
  if (absl::IsNotFound(status) || absl::IsResourceExhausted(status)) return Loss(status.message());
  return snapshot;
}

}  // namespace capstan
