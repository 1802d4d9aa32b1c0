#include "runtime/thread.hpp"

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <utility>

#include "moelink/error.hpp"

namespace moelink {

std::thread start_thread(const std::string& name, std::function<void()> body) {
  // A new thread inherits the mask of the one that starts it.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  std::string failure;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error& error) {
    failure = error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!failure.empty()) {
    throw Error(ErrorCode::system, "could not start the thread " + name + ": " + failure +
                                       "; use fewer threads (MOELINK_HOST_THREADS) or raise the limit of the system");
  }
  pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
  return thread;
}

}  // namespace moelink
