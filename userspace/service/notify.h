// SPDX-License-Identifier: Apache-2.0
//
// Tells the service manager how this service does: the protocol of sd_notify(3) and sd_watchdog_enabled(3).
//
// Without a manager that wants to know, and when it cannot be reached, nothing happens. Thread-safe, but for the
// constructor.
#ifndef HEAPTAP_USERSPACE_SERVICE_NOTIFY_H_
#define HEAPTAP_USERSPACE_SERVICE_NOTIFY_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace heaptap::service {

class ServiceManager {
 public:
  // Takes what the manager said out of the environment, so that no child believes that it was said to it. To be made
  // before there are other threads.
  ServiceManager();

  // The service has started, or has read its configuration again.
  void NotifyReady() const;
  // It begins to read its configuration again.
  void NotifyReloading() const;
  // It begins to end.
  void NotifyStopping() const;
  // What it does, for people, one line.
  void NotifyStatus(absl::string_view status) const;
  // It is alive. To be said every watchdog_interval().
  void NotifyAlive() const;

  // Half of the time after which the manager takes a silent service for dead; infinite: it never does.
  absl::Duration watchdog_interval() const { return watchdog_interval_; }

 private:
  // `state`: lines of NAME=VALUE.
  void Notify(absl::string_view state) const;

  std::string socket_;  // "/path" or "@abstract"; "": nobody listens
  absl::Duration watchdog_interval_ = absl::InfiniteDuration();
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_NOTIFY_H_
