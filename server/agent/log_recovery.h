// LogRecovery: lets a server begin a new incarnation once the disk of its logs, which was full, has
// room.
//
// An incarnation cannot get back the records that a full disk has cost it: the scheduler counts it
// as dead for the jobs concerned. A new incarnation of the same process registers with what the
// logs hold, as after a restart, and the jobs that wait for these logs go on.
//
//            LogFailed: no space                  the disk has room, and Need is kNow
//   IDLE ----------------------------> WATCHING ---------------------------------------> begin_anew
//    ^                                    |  Need is kNone                                   |
//    '------------------------------------+----<------ (the pause doubles each time) --------'
//
// The disk is probed after each pause, `pause_min` at first. A new incarnation less than
// `pause_max` after the one before makes the pause twice as long, up to `pause_max`, so that a disk
// with hardly any room does not cost an incarnation a second.
// Thread safety: thread-safe, except that Start and Stop are one thread's. The functions of Options
// are called by one thread, under no lock of this class.
#ifndef CAPSTAN_SERVER_AGENT_LOG_RECOVERY_H_
#define CAPSTAN_SERVER_AGENT_LOG_RECOVERY_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace capstan::server {

class LogRecovery {
 public:
  // Whether a new incarnation is needed, and may begin: it costs every job what only this
  // incarnation holds.
  enum class Need { kNone, kLater, kNow };

  struct Options {
    std::function<absl::Status()> probe;  // OK: the disk has room.
    std::function<Need()> need;
    std::function<void()> begin_anew;
    absl::Duration pause_min = absl::Seconds(1);  // > 0.
    absl::Duration pause_max = absl::Minutes(1);  // At least pause_min.
  };

  explicit LogRecovery(Options options);
  ~LogRecovery();  // Stops.

  void Start();
  void Stop();  // Idempotent.

  // A log cannot be written. No effect unless that is for want of space (kResourceExhausted).
  void LogFailed(const absl::Status& status);

 private:
  void Run();
  bool Watch();  // True: the watch is over.

  const Options options_;
  absl::Duration pause_;  // Used by the thread alone, as are the next two.
  absl::Time begun_anew_ = absl::InfinitePast();
  bool told_later_ = false;  // Need::kLater was logged.

  absl::Mutex mutex_;
  bool watching_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_AGENT_LOG_RECOVERY_H_
