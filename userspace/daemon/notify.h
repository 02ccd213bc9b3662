// SPDX-License-Identifier: Apache-2.0
//
// Reports this service's state to the service manager, by the protocol of sd_notify(3) and sd_watchdog_enabled(3).
//
// Does nothing if there is no such manager, or if it cannot be reached. Thread-safe, except for the constructor.
#ifndef HEAPTAP_USERSPACE_DAEMON_NOTIFY_H_
#define HEAPTAP_USERSPACE_DAEMON_NOTIFY_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace heaptap::daemon {

class ServiceManager {
 public:
  // Removes the manager's variables from the environment, so that no child uses them. Construct it before other threads
  // start.
  ServiceManager();

  // The service has started, or has read its configuration again.
  void NotifyReady() const;
  // The service begins to read its configuration again.
  void NotifyReloading() const;
  // The service begins to end.
  void NotifyStopping() const;
  // One line for people.
  void NotifyStatus(absl::string_view status) const;
  // The service is alive. Call it every watchdog_interval().
  void NotifyAlive() const;

  // Half of the time after which the manager considers a silent service dead; infinite: it has no watchdog.
  absl::Duration watchdog_interval() const { return watchdog_interval_; }

 private:
  // `state`: lines of NAME=VALUE.
  void Notify(absl::string_view state) const;

  std::string socket_;  // "/path" or "@abstract"; "": no manager
  absl::Duration watchdog_interval_ = absl::InfiniteDuration();
};

}  // namespace heaptap::daemon

#endif  // HEAPTAP_USERSPACE_DAEMON_NOTIFY_H_
