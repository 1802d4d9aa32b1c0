// How a server ends: when it is asked to, when a rank or its socket is lost, and when it cannot begin.
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <string>
#include <thread>

#include "comm/expect_error.hpp"
#include "engine/completions.hpp"
#include "engine/raw_client.hpp"
#include "engine/serving.hpp"

namespace moelink::engine {
namespace {

using moelink::testing::expect_error;
using testing::cases;
using testing::Client;
using testing::endless;
using testing::expect_greedy;
using testing::greedy;
using testing::Json;
using testing::RawClient;
using testing::Seen;
using testing::serve_options;
using testing::TestServer;

TEST(Serve, AShutdownLetsRequestsEndAndTakesNoMore) {
  TestServer server(serve_options(), 2);
  Client client(server);
  std::atomic<bool> begun = false;
  Seen seen;
  Json body = greedy(cases()[0], true);
  body["max_tokens"] = 300;
  std::thread streams([&] {
    seen = Client(server).stream(body, [&](const Seen&) {
      begun = true;
      return true;
    });
  });
  while (!begun) std::this_thread::yield();
  server.shutdown().request();
  // Asked until it is told: the request does not reach the desk at once.
  httplib::Result late = client.get("/health");
  while (late && late->status == 200) late = client.get("/health");
  EXPECT_TRUE(!late || late->status == 503);
  streams.join();
  server.join();
  EXPECT_TRUE(seen.done);
  EXPECT_EQ(seen.finish_reason, "length");
  EXPECT_EQ(seen.error, "");
}

TEST(Serve, ClientsThatNeverEndTheirRequestDoNotKeepTheServerFromEnding) {
  TestServer server(serve_options());
  std::latch begun(3);
  const auto drip = [&](const std::string& head) {
    const RawClient client(server.port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: here\r\n" + head);
    begun.arrive_and_wait();
    // Not for ever, so that a server that waits for it fails instead of hanging.
    constexpr int kMostBytes = 600;
    for (int i = 0; i < kMostBytes && client.try_send(" "); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  };
  std::thread in_body([&] { drip("Content-Length: 20000\r\n\r\n"); });
  std::thread in_head([&] { drip("User-Agent: "); });
  begun.arrive_and_wait();
  expect_greedy(Client(server).complete(greedy(cases()[0])), cases()[0]);
  const auto asked = std::chrono::steady_clock::now();
  server.shutdown().request();
  server.join();
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(15));
  in_body.join();
  in_head.join();
}

TEST(Serve, AfterTheGraceThoseWhoWaitAreToldWhy) {
  ServeOptions options = serve_options();
  options.grace = std::chrono::milliseconds(100);
  TestServer server(options, 2);
  Seen seen;
  Seen whole;
  std::thread streams([&] { seen = Client(server).stream(endless()); });
  std::thread waits([&] { whole = Client(server).complete(endless(false)); });
  Client(server).wait_for("moelink_requests_running", 2);
  server.shutdown().request();
  streams.join();
  waits.join();
  server.join();
  EXPECT_EQ(seen.error, "the server is shutting down");
  EXPECT_TRUE(seen.done);
  EXPECT_EQ(whole.status, 503);
  EXPECT_EQ(whole.error, "the server is shutting down");
}

TEST(Serve, ARankThatIsLostEndsTheServerAndEveryRequestWithAnError) {
  TestServer server(serve_options(), 3);
  Seen seen;
  Seen whole;
  std::thread streams([&] { seen = Client(server).stream(endless()); });
  std::thread waits([&] { whole = Client(server).complete(endless(false)); });
  Client(server).wait_for("moelink_requests_running", 2);
  server.rank(2).abort("rank 2 is no more");
  streams.join();
  waits.join();
  expect_error(ErrorCode::aborted, {"rank 2 is no more"}, [&] { server.join(); });
  EXPECT_NE(seen.error.find("rank 2 is no more"), std::string::npos) << seen.error;
  EXPECT_EQ(whole.status, 500);
  EXPECT_NE(whole.error.find("rank 2 is no more"), std::string::npos) << whole.error;
}

TEST(Serve, ARankThatIsLostWhileNothingIsAskedEndsTheServer) {
  TestServer server(serve_options(), 2);
  server.rank(1).abort("rank 1 is no more");
  expect_error(ErrorCode::aborted, {"rank 1 is no more"}, [&] { server.join(); });
}

/// The socket that this process listens with at `port`; -1: none.
int listening_socket(int port) {
  constexpr int kMostSockets = 4096;
  for (int fd = 0; fd < kMostSockets; ++fd) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    sockaddr_in address{};
    socklen_t length = sizeof(address);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 && ntohs(address.sin_port) == port) {
      return fd;
    }
  }
  return -1;
}

TEST(Serve, AnEndpointThatCannotAcceptAnyMoreEndsTheServerWithAnError) {
  TestServer server(serve_options());
  const int socket = listening_socket(server.port());
  ASSERT_GE(socket, 0);
  ASSERT_EQ(::shutdown(socket, SHUT_RDWR), 0);
  expect_error(ErrorCode::system, {"accepts no connections"}, [&] { server.join(); });
}

TEST(Serve, ANameThatCannotStandInAnAnswerIsRefused) {
  ServeOptions options = serve_options();
  options.model_name = "caf\xe9";
  Shutdown shutdown;
  expect_error(ErrorCode::invalid_argument, {"UTF-8"},
               [&] { serve(Communicator::single(Device::host()), options, shutdown, [](int) {}); });
}

TEST(Serve, APortThatIsTakenIsAnErrorBeforeAModelIsLoaded) {
  const TestServer server(serve_options());
  ServeOptions options = serve_options();
  options.folder = "/nonesuch";
  options.http.port = server.port();
  Shutdown shutdown;
  expect_error(ErrorCode::system, {std::to_string(server.port()), "--port"},
               [&] { serve(Communicator::single(Device::host()), options, shutdown, [](int) {}); });
}

}  // namespace
}  // namespace moelink::engine
