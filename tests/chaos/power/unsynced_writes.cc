// A library that is loaded before libc into a daemon (LD_PRELOAD). It writes down all that the
// daemon's files would lose with the power: the bytes that it wrote and has not synced, with those
// that were in their place, and the names that it changed in folders that it has not synced.
//
// The daemon's calls do what they always do. What they change is first appended to a journal,
// which the page cache keeps when the daemon is killed; power.py then takes back any part of it.
// Names that are replaced or removed stay as links beside the journal, so that they can come back.
//
//   CAPSTAN_POWER_ROOT     files in the folders of this one are looked after; not those of scratch
//                          disks, nor those that lie in it itself (ports, which tests read)
//   CAPSTAN_POWER_CONTROL  where the journal and the links are; of the same file system
//   CAPSTAN_POWER_DEAF     if set: paths that contain it are never called synced, as if the daemon
//                          had been built without fsync
//
// Known to be missing, as the daemons do not use them: O_DIRECT, io_uring, mapped files that must
// last, dup, fallocate, stdio. SQLite maps its shared index, which it makes anew at each start.
// Thread safety: thread-safe; one mutex orders the journal and the changes that it tells of.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <string>

namespace {

constexpr size_t kDescriptorsMax = 65536;
// Nothing of it must last (server/store/sparse/disk/file_row_disks.h).
constexpr char kScratch[] = "/rows/";

// For each descriptor: the inode of a watched file that is open for writing, or 0.
std::array<std::atomic<uint64_t>, kDescriptorsMax> inodes;
std::mutex order;
std::atomic<uint64_t> tokens{0};

template <typename Function>
Function Real(Function, const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}
#define REAL(name) static const auto real = Real(&::name, #name)

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

const std::string& Root() {
  static const std::string root = Variable("CAPSTAN_POWER_ROOT") + "/";
  return root;
}

const std::string& Control() {
  static const std::string control = Variable("CAPSTAN_POWER_CONTROL");
  return control;
}

std::string Absolute(const char* path) {
  if (path[0] == '/') return path;
  char folder[4096];
  if (getcwd(folder, sizeof(folder)) == nullptr) return path;
  return std::string(folder) + "/" + path;
}

bool IsLookedAfter(const std::string& path) {
  return Root().size() > 1 && path.compare(0, Root().size(), Root()) == 0 &&
         path.compare(0, Control().size(), Control()) != 0 &&
         path.find('/', Root().size()) != std::string::npos &&
         (path + "/").find(kScratch) == std::string::npos;
}

bool IsDeaf(const std::string& path) {
  static const std::string deaf = Variable("CAPSTAN_POWER_DEAF");
  return !deaf.empty() && path.find(deaf) != std::string::npos;
}

std::string PathOf(int fd) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(link.c_str(), path, sizeof(path));
  return length < 0 ? "" : std::string(path, static_cast<size_t>(length));
}

uint64_t InodeOf(int fd) {
  if (fd < 0 || static_cast<size_t>(fd) >= kDescriptorsMax) return 0;
  return inodes[static_cast<size_t>(fd)].load(std::memory_order_relaxed);
}

// Ends the daemon if a step of the harness fails: a loss that is not written down would pass
// unnoticed.
[[noreturn]] void Give(const char* what) {
  dprintf(STDERR_FILENO, "unsynced_writes: %s: %s\n", what, strerror(errno));
  abort();
}

// One record of the journal: its length, its kind, then numbers and bytes.
class Record {
 public:
  explicit Record(char kind) : bytes_(sizeof(uint32_t), '\0') { bytes_.push_back(kind); }
  Record& Add(uint64_t number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
    return *this;
  }
  Record& Add(const std::string& bytes) {
    bytes_.append(bytes);
    return *this;
  }
  void Write() {
    static const int journal =
        static_cast<int>(syscall(SYS_openat, AT_FDCWD, (Control() + "/journal").c_str(),
                                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    const auto length = static_cast<uint32_t>(bytes_.size());
    memcpy(bytes_.data(), &length, sizeof(length));
    if (syscall(SYS_write, journal, bytes_.data(), bytes_.size()) !=
        static_cast<long>(bytes_.size())) {
      Give("cannot write the journal");
    }
  }

 private:
  std::string bytes_;
};

std::string ReadBack(int fd, uint64_t begin, uint64_t end) {
  std::string bytes(end > begin ? end - begin : 0, '\0');
  if (bytes.empty()) return bytes;
  // Opened anew: the daemon's descriptor may be for writing only.
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const auto again =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, link.c_str(), O_RDONLY | O_CLOEXEC));
  if (again < 0) Give("cannot open a file to read it");
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        pread(again, bytes.data() + done, bytes.size() - done, static_cast<off_t>(begin + done));
    if (got <= 0) Give("cannot read what is to be overwritten");
    done += static_cast<size_t>(got);
  }
  syscall(SYS_close, again);
  return bytes;
}

uint64_t SizeOf(int fd) {
  struct stat status;
  if (fstat(fd, &status) != 0) Give("cannot look at a file");
  return static_cast<uint64_t>(status.st_size);
}

void NoteWrite(int fd, uint64_t inode, uint64_t offset, uint64_t count) {
  const uint64_t size = SizeOf(fd);
  const std::string before = ReadBack(fd, offset, std::min(size, offset + count));
  Record('W').Add(inode).Add(offset).Add(count).Add(size).Add(before).Write();
}

void NoteTruncate(int fd, uint64_t inode, uint64_t size) {
  const uint64_t before = SizeOf(fd);
  if (before == size) return;
  Record('T').Add(inode).Add(size).Add(before).Add(ReadBack(fd, size, before)).Write();
}

// Keeps a name that is about to go; returns the link's number, 0 if there is no file.
uint64_t Keep(const std::string& path) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  const uint64_t number = static_cast<uint64_t>(getpid()) << 32 | ++tokens;
  if (link(path.c_str(), (Control() + "/kept-" + std::to_string(number)).c_str()) != 0) {
    Give("cannot keep a name");
  }
  return number;
}

uint64_t OffsetOf(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if ((flags & O_APPEND) != 0) return SizeOf(fd);
  return static_cast<uint64_t>(lseek(fd, 0, SEEK_CUR));
}

uint64_t BytesOf(const iovec* pieces, int count) {
  uint64_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  return bytes;
}

template <typename Open>
int OpenAndNote(const char* given, int flags, const Open& open_it) {
  const std::string path = Absolute(given);
  if ((flags & O_ACCMODE) == O_RDONLY || !IsLookedAfter(path)) return open_it(flags);
  const std::lock_guard<std::mutex> lock(order);
  struct stat status;
  const bool existed = stat(path.c_str(), &status) == 0;
  if (existed && !S_ISREG(status.st_mode)) return open_it(flags);
  const int fd = open_it(flags & ~O_TRUNC);
  if (fd < 0) return fd;
  if (static_cast<size_t>(fd) >= kDescriptorsMax) Give("too many descriptors");
  if (fstat(fd, &status) != 0) Give("cannot look at a file");
  const auto inode = static_cast<uint64_t>(status.st_ino);
  if (!existed) Record('C').Add(inode).Add(path).Write();
  inodes[static_cast<size_t>(fd)] = inode;
  if ((flags & O_TRUNC) != 0 && status.st_size > 0) {
    NoteTruncate(fd, inode, 0);
    if (syscall(SYS_ftruncate, fd, 0) != 0) Give("cannot empty a file");
  }
  return fd;
}

template <typename Sync>
int SyncAndNote(int fd, const Sync& sync_it) {
  const uint64_t inode = InodeOf(fd);
  const std::string path = PathOf(fd);
  struct stat status;
  const bool folder =
      inode == 0 && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode) && IsLookedAfter(path + "/");
  if ((inode == 0 && !folder) || IsDeaf(path + "/")) return sync_it();
  const uint64_t token = static_cast<uint64_t>(getpid()) << 32 | ++tokens;
  const auto note = [&](char of_file, char of_folder) {
    const std::lock_guard<std::mutex> lock(order);
    Record record(folder ? of_folder : of_file);
    record.Add(token);
    folder ? record.Add(path).Write() : record.Add(inode).Write();
  };
  // The sync does not cover bytes that are written while it runs, so its begin is noted, too.
  note('B', 'E');
  const int result = sync_it();
  if (result == 0) note('S', 'D');
  return result;
}

template <typename Change>
int RemoveAndNote(const char* given, const Change& remove_it) {
  const std::string path = Absolute(given);
  if (!IsLookedAfter(path)) return remove_it();
  const std::lock_guard<std::mutex> lock(order);
  struct stat status;
  const bool is_folder = lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  const uint64_t kept = is_folder ? 0 : Keep(path);
  const int result = remove_it();
  if (result == 0) Record(is_folder ? 'X' : 'U').Add(kept).Add(path).Write();
  return result;
}

// The absolute path of `name` in the open folder `folder`.
std::string PathIn(int folder, const char* name) {
  if (folder == AT_FDCWD || name[0] == '/') return Absolute(name);
  return PathOf(folder) + "/" + name;
}

template <typename Change>
int RenameAndNote(const std::string& old_path, const std::string& new_path,
                  const Change& rename_it) {
  if (!IsLookedAfter(new_path)) return rename_it();
  const std::lock_guard<std::mutex> lock(order);
  const uint64_t kept = Keep(new_path);
  const int result = rename_it();
  if (result == 0) Record('R').Add(kept).Add(old_path + '\0' + new_path).Write();
  return result;
}

template <typename Change>
int MakeFolderAndNote(const std::string& folder, const Change& make_it) {
  if (!IsLookedAfter(folder)) return make_it();
  const std::lock_guard<std::mutex> lock(order);
  const int result = make_it();
  if (result == 0) Record('M').Add(folder).Write();
  return result;
}

// As libc's syscall, whose place is taken below.
long AskKernel(long number, const std::array<long, 6>& given) {
  register long fourth asm("r10") = given[3];
  register long fifth asm("r8") = given[4];
  register long sixth asm("r9") = given[5];
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(given[0]), "S"(given[1]), "d"(given[2]), "r"(fourth), "r"(fifth),
                 "r"(sixth)
               : "rcx", "r11", "memory");
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

mode_t ModeOf(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

}  // namespace

// ---------------------------------------------------------------- what takes libc's place

#define TAKES_THE_PLACE extern "C" __attribute__((visibility("default")))
#define MODE                                    \
  va_list arguments;                            \
  va_start(arguments, flags);                   \
  const mode_t mode = ModeOf(flags, arguments); \
  va_end(arguments)

TAKES_THE_PLACE int open(const char* path, int flags, ...) {
  MODE;
  return OpenAndNote(path, flags, [&](int with) {
    return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, with, mode));
  });
}

TAKES_THE_PLACE int open64(const char* path, int flags, ...) {
  MODE;
  return open(path, flags | O_LARGEFILE, mode);
}

TAKES_THE_PLACE int close(int fd) {
  REAL(close);
  if (InodeOf(fd) != 0) inodes[static_cast<size_t>(fd)] = 0;
  return real(fd);
}

TAKES_THE_PLACE ssize_t write(int fd, const void* bytes, size_t count) {
  REAL(write);
  const uint64_t inode = InodeOf(fd);
  if (inode == 0) return real(fd, bytes, count);
  const std::lock_guard<std::mutex> lock(order);
  NoteWrite(fd, inode, OffsetOf(fd), count);
  return real(fd, bytes, count);
}

TAKES_THE_PLACE ssize_t writev(int fd, const iovec* pieces, int count) {
  REAL(writev);
  const uint64_t inode = InodeOf(fd);
  if (inode == 0) return real(fd, pieces, count);
  const std::lock_guard<std::mutex> lock(order);
  NoteWrite(fd, inode, OffsetOf(fd), BytesOf(pieces, count));
  return real(fd, pieces, count);
}

TAKES_THE_PLACE ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  REAL(pwrite);
  const uint64_t inode = InodeOf(fd);
  if (inode == 0) return real(fd, bytes, count, offset);
  const std::lock_guard<std::mutex> lock(order);
  NoteWrite(fd, inode, static_cast<uint64_t>(offset), count);
  return real(fd, bytes, count, offset);
}

TAKES_THE_PLACE ssize_t pwrite64(int fd, const void* bytes, size_t count, off64_t offset) {
  return pwrite(fd, bytes, count, offset);
}

TAKES_THE_PLACE int ftruncate(int fd, off_t size) {
  REAL(ftruncate);
  const uint64_t inode = InodeOf(fd);
  if (inode == 0) return real(fd, size);
  const std::lock_guard<std::mutex> lock(order);
  NoteTruncate(fd, inode, static_cast<uint64_t>(size));
  return real(fd, size);
}

TAKES_THE_PLACE int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

TAKES_THE_PLACE int fsync(int fd) {
  REAL(fsync);
  return SyncAndNote(fd, [fd] { return real(fd); });
}

TAKES_THE_PLACE int fdatasync(int fd) {
  REAL(fdatasync);
  return SyncAndNote(fd, [fd] { return real(fd); });
}

TAKES_THE_PLACE long syscall(long number, ...) {
  va_list arguments;
  va_start(arguments, number);
  std::array<long, 6> given{};
  for (long& each : given) each = va_arg(arguments, long);
  va_end(arguments);
  if (number != SYS_openat2) return AskKernel(number, given);
  // common/storage/files/path_access.cc opens so, since libc has no function for it.
  open_how how = *reinterpret_cast<const open_how*>(given[2]);
  const std::string path =
      PathIn(static_cast<int>(given[0]), reinterpret_cast<const char*>(given[1]));
  return OpenAndNote(path.c_str(), static_cast<int>(how.flags), [&](int with) {
    how.flags = static_cast<uint64_t>(with);
    given[2] = reinterpret_cast<long>(&how);
    return static_cast<int>(AskKernel(number, given));
  });
}

TAKES_THE_PLACE int rename(const char* from, const char* to) {
  REAL(rename);
  return RenameAndNote(Absolute(from), Absolute(to), [=] { return real(from, to); });
}

TAKES_THE_PLACE int renameat(int old_folder, const char* from, int new_folder, const char* to) {
  REAL(renameat);
  return RenameAndNote(PathIn(old_folder, from), PathIn(new_folder, to),
                       [=] { return real(old_folder, from, new_folder, to); });
}

TAKES_THE_PLACE int unlink(const char* path) {
  REAL(unlink);
  return RemoveAndNote(path, [path] { return real(path); });
}

TAKES_THE_PLACE int rmdir(const char* path) {
  REAL(rmdir);
  return RemoveAndNote(path, [path] { return real(path); });
}

TAKES_THE_PLACE int remove(const char* path) {
  REAL(remove);
  return RemoveAndNote(path, [path] { return real(path); });
}

TAKES_THE_PLACE int unlinkat(int folder, const char* name, int flags) {
  REAL(unlinkat);
  const std::string path = PathIn(folder, name);
  return RemoveAndNote(path.c_str(), [=] { return real(folder, name, flags); });
}

TAKES_THE_PLACE int mkdir(const char* path, mode_t mode) {
  REAL(mkdir);
  return MakeFolderAndNote(Absolute(path), [=] { return real(path, mode); });
}

TAKES_THE_PLACE int mkdirat(int folder, const char* name, mode_t mode) {
  REAL(mkdirat);
  return MakeFolderAndNote(PathIn(folder, name), [=] { return real(folder, name, mode); });
}
