#include "engine/serve/http_server.hpp"

#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/text.hpp"
#include "engine/serve/answer.hpp"
#include "engine/serve/api_error.hpp"
#include "engine/serve/client_socket.hpp"
#include "engine/serve/completion_request.hpp"
#include "engine/serve/connection_threads.hpp"
#include "engine/serve/continuation.hpp"
#include "engine/serve/request_head.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kJson = "application/json";
constexpr std::chrono::milliseconds kLookForClient{100};  ///< how often, while there is nothing to send

/// A socket takes five connections that have not been accepted yet, if it is left to httplib.
class Listener : public httplib::Server {
 public:
  void lengthen_queue() {
    constexpr int kQueue = 512;
    ::listen(svr_sock_, kQueue);
  }
};

void fail(httplib::Response& response, const ApiError& error) {
  response.status = error.status();
  response.set_content(error.body(), kJson);
  if (error.status() == 429 || error.status() == 503) {
    response.set_header("Retry-After", "1");
  }
}

std::string no_such(const httplib::Request& request) {
  return text("there is no ", request.method, ' ', request.path,
              "; there are POST /v1/completions, GET /v1/models, /health, /metrics");
}

/// The connection ends with this answer, and what the client still sends is forgotten for a while: closing at once
/// would reset the connection, and the client might never see the answer.
void fail_and_close(const httplib::Request& request, httplib::Response& response, const ApiError& error) {
  response.status = error.status();
  response.set_header("Connection", "close");
  if (request.method == "HEAD") {  // asks for no body, whose end would be the connection's: it gets no answer
    ClientSocket(request).end_of_answers();
    return;
  }
  std::string body = error.body();
  const std::size_t size = body.size();
  response.set_content_provider(size, kJson,
                                [body = std::move(body), client = ClientSocket(request)](std::size_t begin, std::size_t,
                                                                                         httplib::DataSink& sink) {
                                  if (sink.write(body.data() + begin, body.size() - begin)) {
                                    client.end_of_answers();
                                  }
                                  return false;  // what httplib ends a connection for
                                });
}

/// The whole body, or ApiError. What is in chunks and too long is read to its end all the same: what is left of it
/// would be taken for the next request of this connection. Once `stopping`, or too late, nothing is read to its end.
std::string body_of(const httplib::Request& request, const httplib::ContentReader& reader, const HttpOptions& options,
                    const std::atomic<bool>& stopping) {
  const std::size_t max_bytes = options.max_body_bytes;
  check_body_head(request, max_bytes);
  const auto end = std::chrono::steady_clock::now() + options.slowest_body;
  const auto in_time = [&] { return !stopping && std::chrono::steady_clock::now() < end; };
  std::string body;
  bool fits = true;
  const bool whole = reader([&](const char* data, std::size_t size) {
    fits = fits && size <= max_bytes - body.size();
    if (fits) {
      body.append(data, size);
    }
    return in_time();
  });
  if (!whole && !in_time() && !stopping) {
    throw RefusedUnread(408, text("the body did not come within ", options.slowest_body.count(), " ms"));
  }
  if (!whole) {  // first of all: whatever is left of the body would be taken for the next request
    throw RefusedUnread(400, "the body ended before its announced length, or its chunks are malformed");
  }
  if (!fits) {
    throw ApiError(413, text("the body has more than ", max_bytes, " bytes, which is the most that is taken"));
  }
  return body;
}

}  // namespace

struct HttpServer::Impl {
  explicit Impl(const HttpOptions& http_options);
  void add_routes();
  void complete(const httplib::Request& request, httplib::Response& response, const std::string& body);
  static void answer_at_once(const httplib::Request& request, httplib::Response& response, Continuation& continuation,
                             const Answer& answer);
  static void stream(httplib::Response& response, std::shared_ptr<Continuation> continuation, const Answer& answer);

  HttpOptions options;
  Listener server;
  int port = 0;
  Desk* desk = nullptr;
  const Tokenizer* tokenizer = nullptr;
  std::string model_name;
  std::time_t started = 0;
  std::atomic<bool> stopping = false;
  std::atomic<bool> has_ended = false;
  std::thread thread;
};

HttpServer::Impl::Impl(const HttpOptions& http_options) : options(http_options) {
  constexpr std::time_t kIdleSeconds = 2;      // a connection without a request; what stop() waits for
  constexpr std::time_t kSlowestSeconds = 10;  // for the next bytes of a request, or for a client to take some
  constexpr std::size_t kRequestsOfConnection = 1000;
  server.set_keep_alive_timeout(kIdleSeconds);
  server.set_keep_alive_max_count(kRequestsOfConnection);
  server.set_read_timeout(kSlowestSeconds);
  server.set_write_timeout(kSlowestSeconds);
  server.set_payload_max_length(options.max_body_bytes);
  server.set_tcp_nodelay(true);
  // httplib's own choice, SO_REUSEPORT, would let two servers share a port without a word.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    (void)setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  server.new_task_queue = [most = options.max_connections] { return new ConnectionThreads(most); };
  errno = 0;
  if (options.port == 0) {
    port = server.bind_to_any_port(options.host);
  } else {
    port = server.bind_to_port(options.host, options.port) ? options.port : -1;
  }
  if (port < 0) {
    throw Error(ErrorCode::system, text("cannot listen at ", options.host, ':', options.port, " (",
                                        std::strerror(errno), "): choose another --host or --port"));
  }
  server.lengthen_queue();
}

void HttpServer::Impl::add_routes() {
  server.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
    const bool answered = response.has_header("Connection");  // by fail_and_close(), whose body httplib asks for later
    if (response.body.empty() && !answered) {
      const int status = response.status;
      fail(response, {status, status == 404 ? no_such(request) : text("HTTP status ", status)});
    }
  });
  server.set_exception_handler(
      [](const httplib::Request& request, httplib::Response& response, std::exception_ptr thrown) {
        try {
          std::rethrow_exception(thrown);
        } catch (const RefusedUnread& error) {
          fail_and_close(request, response, error);
        } catch (const std::exception& error) {
          fail(response, ApiError::of(error));
        } catch (...) {
          fail(response, {500, "something that is no exception was thrown"});
        }
      });
  server.set_pre_routing_handler([](const httplib::Request& request, httplib::Response&) {
    if (request.method == "POST" && request.path == "/v1/completions") {
      return httplib::Server::HandlerResponse::Unhandled;  // body_of() looks at its head
    }
    if (announces_body(request)) {
      throw RefusedUnread(request.method == "GET" ? 400 : 404,
                          text(request.method, ' ', request.path, " takes no body; there is POST /v1/completions"));
    }
    // Where these announce no body, httplib takes all that ever comes for one, and keeps it.
    if (request.method != "GET" && request.method != "HEAD" && request.method != "OPTIONS") {
      throw RefusedUnread(404, no_such(request));
    }
    return httplib::Server::HandlerResponse::Unhandled;
  });
  server.Post("/v1/completions", [this](const httplib::Request& request, httplib::Response& response,
                                        const httplib::ContentReader& reader) {
    complete(request, response, body_of(request, reader, options, stopping));
  });
  server.Get("/health", [this](const httplib::Request&, httplib::Response& response) {
    if (const auto closed = desk->closed()) {
      throw ApiError(503, *closed);
    }
    response.set_content(OrderedJson{{"status", "ok"}}.dump(), kJson);
  });
  server.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
    response.set_content(desk->metrics(), "text/plain; version=0.0.4; charset=utf-8");
  });
  const auto describe_model = [this] {
    return OrderedJson{{"id", model_name}, {"object", "model"}, {"created", started}, {"owned_by", "moelink"}};
  };
  server.Get("/v1/models", [describe_model](const httplib::Request&, httplib::Response& response) {
    response.set_content(OrderedJson{{"object", "list"}, {"data", OrderedJson::array({describe_model()})}}.dump(),
                         kJson);
  });
  server.Get("/v1/models/(.+)", [this, describe_model](const httplib::Request& request, httplib::Response& response) {
    if (request.matches[1] != model_name) {
      throw ApiError(
          404, text("model \"", request.matches[1], "\" does not exist here; this server has \"", model_name, '"'),
          {.param = "model", .code = "model_not_found"});
    }
    response.set_content(describe_model().dump(), kJson);
  });
}

void HttpServer::Impl::complete(const httplib::Request& request, httplib::Response& response, const std::string& body) {
  desk->expect_room();  // before a long prompt is made tokens for nothing
  CompletionRequest wanted = parse_completion(body, *tokenizer, model_name);
  const auto num_prompt_tokens = static_cast<std::int64_t>(wanted.request.prompt.size());
  auto open = desk->submit(std::move(wanted.request));
  const Answer answer(open->ticket(), model_name, num_prompt_tokens, wanted.include_usage);
  auto continuation = std::make_shared<Continuation>(std::move(open), *tokenizer, std::move(wanted.stops));
  if (wanted.stream) {
    stream(response, std::move(continuation), answer);
  } else {
    answer_at_once(request, response, *continuation, answer);
  }
}

void HttpServer::Impl::answer_at_once(const httplib::Request& request, httplib::Response& response,
                                      Continuation& continuation, const Answer& answer) {
  const ClientSocket client(request);
  std::string words;
  while (true) {
    const Continuation::Piece piece = continuation.next(kLookForClient);
    words += piece.text;
    if (piece.end && !piece.end->is_good()) {
      throw ApiError(piece.end->reason == FinishReason::cancelled ? 503 : 500, piece.end->error);
    }
    if (piece.end) {
      response.set_content(answer.whole(words, *piece.end), kJson);
      return;
    }
    if (client.hung_up()) {
      throw ApiError(499, "the client hung up");  // for nobody; the request is cancelled
    }
  }
}

void HttpServer::Impl::stream(httplib::Response& response, std::shared_ptr<Continuation> continuation,
                              const Answer& answer) {
  response.set_header("Cache-Control", "no-cache");
  // The response owns the continuation: when the client hangs up it goes, and with it the request.
  response.set_chunked_content_provider(
      "text/event-stream", [continuation = std::move(continuation), answer](std::size_t, httplib::DataSink& sink) {
        const Continuation::Piece piece = continuation->next(kLookForClient);
        std::string events = piece.text.empty() ? std::string() : answer.event(piece.text);
        if (piece.end) {
          events += answer.end_events(*piece.end);
        }
        if (events.empty()) {
          return sink.is_writable();
        }
        const bool taken = sink.is_writable() && sink.write(events.data(), events.size());
        if (taken && piece.end) {
          sink.done();
        }
        return taken;
      });
}

HttpServer::HttpServer(const HttpOptions& options) : impl_(std::make_unique<Impl>(options)) {}
HttpServer::~HttpServer() { stop(); }

int HttpServer::port() const noexcept { return impl_->port; }

void HttpServer::start(Desk& desk, const Tokenizer& tokenizer, const std::string& model_name) {
  impl_->desk = &desk;
  impl_->tokenizer = &tokenizer;
  impl_->model_name = model_name;
  impl_->started = std::time(nullptr);
  impl_->add_routes();
  impl_->thread = std::thread([this] {
    impl_->server.listen_after_bind();
    impl_->has_ended = true;
  });
  // httplib forgets to stop what has not begun, and stop() would wait for ever.
  while (!impl_->server.is_running() && !impl_->has_ended) {
    std::this_thread::yield();
  }
}

bool HttpServer::has_failed() const noexcept { return impl_->has_ended && !impl_->stopping; }

void HttpServer::stop() {
  if (impl_->thread.joinable()) {
    impl_->stopping = true;
    impl_->server.stop();
    // The thread waits for all connections, and a client may take for ever to send the rest of its request.
    stop_reading_from_clients(impl_->port);
    impl_->thread.join();
  }
}

}  // namespace moelink::engine
