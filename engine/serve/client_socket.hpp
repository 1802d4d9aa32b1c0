// Whether a client still waits for its answer: the library that speaks HTTP does not tell while a handler works.
#pragma once

#include <httplib.h>

#include <optional>

namespace moelink::engine {

class ClientSocket {
 public:
  /// The socket of the connection that a request came over. Only while its handler works: the socket is open then.
  explicit ClientSocket(const httplib::Request& request);

  /// The client closed its end. False if the socket was not found.
  [[nodiscard]] bool hung_up() const;

  /// Says that nothing more will come, and forgets what the client still sends: until it has understood, for a second
  /// at most. Then nothing is read from it either.
  void end_of_answers() const;

 private:
  std::optional<int> descriptor_;
};

/// Clients that connected to `port` of this process are not listened to any longer: a request that has not come whole
/// ends where it is, however slowly its client goes on. Answers still go out.
void stop_reading_from_clients(int port);

}  // namespace moelink::engine
